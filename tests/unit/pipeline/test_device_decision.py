from palyra.ids import Principal
from palyra.pipeline.authorize import build_device_request
from palyra.pipeline.domain.call import ToolCallConfig, ToolRequestContext
from palyra.pipeline.domain.spec import DeviceOfCall
from palyra.pipeline.domain.workspaces import Workspaces
from palyra.policy.request import Entity, EntityDirectory, EntityRef

NODE = Entity(uid=EntityRef("Node", "n"), attrs={"name": "lap", "capabilities": ["echo"]})


def context(**changes: str) -> ToolRequestContext:
    fields = {"actor": "a", "channel": "cli", "run": "r", "workspace": "/srv/w", **changes}
    return ToolRequestContext(principal=Principal.parse("agent:bot"), **fields)


def test_the_question_is_about_the_device_and_what_it_is_to_do() -> None:
    config = ToolCallConfig(
        directory=EntityDirectory.from_lists(channels=["cli"]), workspaces=Workspaces(default="/srv/w")
    )
    asked = build_device_request(config, context(), DeviceOfCall(entity=NODE, capability="echo"))
    assert (asked.action, asked.resource, asked.context["capability"]) == ("node.invoke", NODE, "echo")
    assert asked.context["approved"] is False and "device" not in asked.context
    from_device = build_device_request(config, context(device="d"), DeviceOfCall(entity=NODE, capability="echo"))
    assert from_device.context["device"] == EntityRef("Device", "d")
    assert {entity.uid for entity in from_device.entities} == {EntityRef("Channel", "cli"), EntityRef("Device", "d")}
