from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from palyra.executors.mcp_upstream.pin_tables import put_approved, put_seen, read_pins
from palyra.executors.mcp_upstream.pinning import (
    TRANSITIONS,
    DefinitionChanged,
    NotReviewed,
    OtherDefinition,
    Pin,
    PinEvent,
    PinState,
    approve,
    look,
    require_in_use,
)
from palyra.executors.mcp_upstream.settings import ServerPlan
from palyra.executors.mcp_upstream.spec import Listing, ToolDefinition, result_of_server, spec_of, words_of
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.spec import ToolCapability
from palyra.server.mcp.client_view import tool_document

ONE = ToolDefinition(name="get", description="one", input_schema={"type": "object"})
OTHER = ToolDefinition(name="get", description="other", input_schema={"type": "object"})


def seen(pins: dict[str, Pin], *definitions: ToolDefinition) -> dict[str, Pin]:
    changed = look("clock", pins, Listing(definitions=definitions), 1, reviewing=True)
    return {**pins, **{pin.tool: pin for pin in changed}}


def test_every_state_answers_every_event() -> None:
    assert TRANSITIONS.keys() == {(state, event) for state in PinState for event in PinEvent}


def test_from_found_to_quarantine_and_back() -> None:
    pins = seen({}, ONE)
    assert pins["get"].state is PinState.PENDING and pins["get"].in_use is None
    with pytest.raises(NotReviewed):
        require_in_use(pins["get"], "clock.get", ONE.digest)
    with pytest.raises(OtherDefinition):
        approve(pins["get"], OTHER.digest, "user:me", 2)
    pins = {"get": approve(pins["get"], ONE.digest, "user:me", 2)}
    assert require_in_use(pins["get"], "clock.get", ONE.digest) == ONE
    assert look("clock", pins, Listing(definitions=(ONE,)), 3, reviewing=True) == []
    pins = seen(pins, OTHER)
    assert pins["get"].state is PinState.QUARANTINED and pins["get"].approved == ONE
    with pytest.raises(DefinitionChanged):
        require_in_use(pins["get"], "clock.get", ONE.digest)
    # Changed back: somebody has to look all the same.
    pins = seen(pins, ONE)
    assert pins["get"].state is PinState.QUARANTINED
    pins = {"get": approve(seen(pins, OTHER)["get"], OTHER.digest, "user:me", 4)}
    assert pins["get"].in_use == OTHER
    # A call that was decided on the old one does not run with the new one.
    with pytest.raises(DefinitionChanged):
        require_in_use(pins["get"], "clock.get", ONE.digest)
    with pytest.raises(NotReviewed):
        require_in_use(None, "clock.gone", ONE.digest)


async def test_pins_are_kept_with_their_entries(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        store = harness.gateway.store
        pin = seen({}, ONE)["get"]
        await store.transact(lambda tx: put_seen(tx, pin, actor="x"))
        approved = approve(pin, ONE.digest, "user:me", 2)
        await store.transact(lambda tx: put_approved(tx, approved, actor="x"))
        assert read_pins(store, "clock") == {"get": approved} and read_pins(store, "other") == {}
        changed = seen({"get": approved}, OTHER)["get"]
        await store.transact(lambda tx: put_seen(tx, changed, actor="x"))
        kinds = [kind for kind in harness.kinds() if kind.startswith("mcp.")]
        assert kinds == ["mcp.tool_found", "mcp.tool_approved", "mcp.tool_quarantined"]


def test_what_a_tool_can_touch_is_what_its_server_is_given() -> None:
    bare = spec_of("clock", ServerPlan(command="x", read_only=True), ONE, 1000)
    assert bare.name == "clock.get" and bare.definition == ONE.digest and bare.title == "get"
    assert bare.metadata.capabilities == {ToolCapability.FILESYSTEM_READ}
    assert tool_document(bare)["annotations"]["readOnlyHint"] and "outputSchema" not in tool_document(bare)
    given = spec_of("clock", ServerPlan(command="x", hosts=("a.test",), secrets={"K": "global/k"}), ONE, 1000)
    assert given.metadata.capabilities >= {ToolCapability.NETWORK, ToolCapability.SECRETS_READ}
    assert given.touches({}).hosts == ("a.test",) and given.touches({}).secrets == ("global/k",)
    assert given.reserves({}) == {BudgetKind.EGRESS_BYTES: 1000} and bare.reserves({}) == {}


def test_a_servers_result_is_kept_in_its_own_form() -> None:
    block = {"type": "text", "text": "half past"}
    shown = result_of_server({"content": [block], "structuredContent": {"h": 1}, "isError": True})
    assert shown == {"content": [block], "structured": {"h": 1}, "is_error": True}
    assert words_of(shown) == "half past" and "no reason" in words_of(result_of_server({}))
