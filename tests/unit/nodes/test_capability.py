import pytest

from fakes.node_state_harness import node_record
from palyra.devicelink.limits import MAX_CAPABILITIES, MAX_DESCRIPTION_CHARS, MAX_SCHEMA_BYTES
from palyra.nodes.domain import capability
from palyra.nodes.domain.capability import (
    AmbiguousDevice,
    BadInventory,
    CapabilityMissing,
    CapabilityWithheld,
    InputMismatch,
    NoCapableDevice,
    UnknownDevice,
    accept_inventory,
    choose_device,
    find_device,
    readable,
    require_capability,
    require_input,
    withhold,
)
from palyra.nodes.domain.records import DeviceCapabilityView

SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
COUNT = DeviceCapabilityView(name="count", input_schema_json=SCHEMA)
LIGHT = DeviceCapabilityView(name="light.on")


@pytest.mark.parametrize("name", ["echo", "light.on", "a-b_c.d2", "system.health"])
def test_names(name: str) -> None:
    assert capability.is_name(name)


@pytest.mark.parametrize("name", ["", "Echo", "a..b", ".a", "a.", "a b", "é", "a" * 65, "a\n"])
def test_not_names(name: str) -> None:
    assert not capability.is_name(name)


def test_an_inventory_is_sorted_and_carries_the_operators_word() -> None:
    accepted = accept_inventory([LIGHT, COUNT], ["light.on", "not.offered"])
    assert [(one.name, one.withheld) for one in accepted] == [("count", False), ("light.on", True)]


def test_a_device_cannot_say_for_itself_that_nothing_is_withheld() -> None:
    lying = DeviceCapabilityView(name="light.on", withheld=False)
    assert accept_inventory([lying], ["light.on"])[0].withheld
    shouting = DeviceCapabilityView(name="light.on", withheld=True)
    assert not accept_inventory([shouting], [])[0].withheld


def test_descriptions_are_one_bounded_line() -> None:
    (one,) = accept_inventory([DeviceCapabilityView(name="a", description="x\n\x1b[2J‮y" + "z" * 9999)], [])
    assert one.description.startswith("x  [2J y") and len(one.description) <= MAX_DESCRIPTION_CHARS
    assert readable("  a\tb  ", 3) == "a"


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    "bad",
    [
        [DeviceCapabilityView(name="A")],
        [LIGHT, LIGHT],
        [DeviceCapabilityView(name="a", input_schema_json="[]")],
        [DeviceCapabilityView(name="a", input_schema_json='{"a":1,"a":2}')],
        [DeviceCapabilityView(name="a", input_schema_json='{"type":"nonsense"}')],
        [DeviceCapabilityView(name="a", input_schema_json='{"$ref":"http://127.0.0.1/x"}')],
        [DeviceCapabilityView(name="a", input_schema_json='{"description":"' + "x" * MAX_SCHEMA_BYTES + '"}')],
        [DeviceCapabilityView(name=f"a{number}") for number in range(MAX_CAPABILITIES + 1)],
        [
            DeviceCapabilityView(name=f"a{number}", input_schema_json='{"description":"' + "x" * 16000 + '"}')
            for number in range(20)
        ],
    ],
)
def test_an_inventory_with_anything_wrong_is_refused_whole(bad: list[DeviceCapabilityView]) -> None:
    with pytest.raises(BadInventory):
        accept_inventory([*bad], [])


def test_withholding_does_not_need_the_capability_to_be_there_and_is_undone_by_allowing() -> None:
    node = node_record(capabilities=(LIGHT,))
    both = withhold(withhold(node, "light.on", withheld=True), "camera", withheld=True)
    assert both.withheld == ("camera", "light.on") and both.capabilities[0].withheld
    assert withhold(both, "light.on", withheld=False).capabilities == (LIGHT,)
    assert withhold(both, "light.on", withheld=True) == both
    with pytest.raises(BadInventory):
        withhold(node, "Not a name", withheld=True)


def test_a_device_is_found_by_id_or_by_a_name_that_is_one_devices_alone() -> None:
    a, b, gone = node_record(name="desk"), node_record(name="lap"), node_record(name="old", revoked_ms=1)
    assert find_device([a, b, gone], "lap") is b and find_device([a, b, gone], a.id) is a
    for unknown in ("old", gone.id, "LAP", ""):
        with pytest.raises(UnknownDevice):
            find_device([a, b, gone], unknown)
    twin = node_record(name="lap")
    with pytest.raises(AmbiguousDevice):
        find_device([a, b, twin], "lap")
    # A device that took another's id as its name is not found by it.
    mimic = node_record(name=str(a.id))
    assert find_device([mimic, a], a.id) is a


def test_the_first_paired_of_those_that_can_is_chosen() -> None:
    first, second = sorted((node_record(capabilities=(LIGHT,)) for _ in range(2)), key=lambda node: node.id)
    nodes = [second, first, node_record()]
    assert choose_device(nodes, [second.id, first.id], "light.on") is first
    assert choose_device(nodes, [second.id], "light.on") is second
    without = withhold(first, "light.on", withheld=True)
    assert choose_device([without, second], [first.id, second.id], "light.on") is second
    for online, name in (([], "light.on"), ([first.id], "camera")):
        with pytest.raises(NoCapableDevice):
            choose_device(nodes, online, name)
    with pytest.raises(NoCapableDevice):
        choose_device([node_record(capabilities=(LIGHT,), revoked_ms=1, id=first.id)], [first.id], "light.on")


def test_what_is_not_offered_is_missing_and_what_is_withheld_is_denied_either_way() -> None:
    node = node_record(capabilities=(LIGHT,), withheld=("camera",))
    assert require_capability(node, "light.on") is LIGHT
    with pytest.raises(CapabilityMissing):
        require_capability(node, "echo")
    with pytest.raises(CapabilityWithheld):
        require_capability(node, "camera")


def test_input_is_held_against_the_schema() -> None:
    require_input(COUNT, {"n": 1})
    require_input(LIGHT, {"anything": True})
    with pytest.raises(InputMismatch) as refused:
        require_input(COUNT, {"n": "one"})
    assert refused.value.details["where"] == "/n"
