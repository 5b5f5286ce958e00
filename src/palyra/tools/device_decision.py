"""The second question about a tool that uses a device: ``node.invoke``, asked in addition to ``tool.execute``."""

from typing import Any, Final

from palyra.policy.entities import Entity, EntityRef
from palyra.policy.request import APPROVED, PolicyRequest
from palyra.tools.call import ToolCallConfig, ToolRequestContext
from palyra.tools.spec import DeviceOfCall

NODE_INVOKE: Final = "node.invoke"


def device_request_for(config: ToolCallConfig, context: ToolRequestContext, device: DeviceOfCall) -> PolicyRequest:
    """``device`` in the context is the device that asks, where one does; the resource is the one that is asked."""
    directory = config.directory
    channel = directory.channel(context.channel)
    asked: dict[str, Any] = {
        APPROVED: False,
        "channel": channel.uid,
        "run": context.run,
        "capability": device.capability,
    }
    entities = [channel]
    if context.device:
        asker = Entity(uid=EntityRef("Device", context.device))
        asked["device"] = asker.uid
        entities.append(asker)
    return PolicyRequest(
        principal=directory.principal(context.principal),
        action=NODE_INVOKE,
        resource=device.entity,
        context=asked,
        entities=tuple(entities),
    )
