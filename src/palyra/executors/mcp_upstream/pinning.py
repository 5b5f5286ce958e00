"""Pins: the definitions of tools as a person reviewed them, and the table of their transitions.

A tool whose definition changes is in quarantine until it is reviewed again, also if it changes back.
"""

from enum import StrEnum
from typing import Final

import msgspec

from palyra.errors import Denied, InvalidInput
from palyra.executors.mcp_upstream.limits import MAX_SERVER_TOOLS
from palyra.executors.mcp_upstream.spec import Listing, ToolDefinition


class PinState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    QUARANTINED = "quarantined"


class PinEvent(StrEnum):
    SEEN_SAME = "seen_same"
    SEEN_OTHER = "seen_other"
    APPROVE = "approve"


TRANSITIONS: Final[dict[tuple[PinState, PinEvent], PinState]] = {
    (PinState.PENDING, PinEvent.SEEN_SAME): PinState.PENDING,
    (PinState.PENDING, PinEvent.SEEN_OTHER): PinState.PENDING,
    (PinState.PENDING, PinEvent.APPROVE): PinState.APPROVED,
    (PinState.APPROVED, PinEvent.SEEN_SAME): PinState.APPROVED,
    (PinState.APPROVED, PinEvent.SEEN_OTHER): PinState.QUARANTINED,
    (PinState.APPROVED, PinEvent.APPROVE): PinState.APPROVED,
    (PinState.QUARANTINED, PinEvent.SEEN_SAME): PinState.QUARANTINED,
    (PinState.QUARANTINED, PinEvent.SEEN_OTHER): PinState.QUARANTINED,
    (PinState.QUARANTINED, PinEvent.APPROVE): PinState.APPROVED,
}


class NotReviewed(Denied):
    code = "mcp.not_reviewed"
    hint = "an operator looks with `palyra mcp show SERVER` and approves with `palyra mcp approve SERVER TOOL`"


class DefinitionChanged(Denied):
    code = "mcp.definition_changed"
    hint = "an operator looks with `palyra mcp show SERVER` and approves with `palyra mcp approve SERVER TOOL`"


class OtherDefinition(InvalidInput):
    code = "mcp.other_definition"
    hint = "look again: what you reviewed is not what the server offers now"
    http_status = 409


class UnknownServerTool(InvalidInput):
    code = "mcp.unknown_tool"
    hint = "`palyra mcp look SERVER` asks the server what it offers"
    http_status = 404


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """The pin of one tool. ``approved`` is the reviewed definition, ``seen`` the server's last one."""

    server: str
    tool: str
    state: PinState
    seen: ToolDefinition
    approved: ToolDefinition | None = None
    decided_by: str = ""
    changed_ms: int = 0

    @property
    def in_use(self) -> ToolDefinition | None:
        return self.approved if self.state is PinState.APPROVED else None


def look(server: str, pins: dict[str, Pin], listing: Listing, now_ms: int, *, reviewing: bool) -> list[Pin]:
    """Compare a server's listing with its pins. Return the pins that are new or changed.

    A call keeps nothing of tools that wait for a review, and new ones as far as there is room: otherwise a server with
    other names in each listing would fill memory, database and journal. ``reviewing``: an operator asks for all.
    """
    changed: list[Pin] = []
    room = len(listing.definitions) if reviewing else MAX_SERVER_TOOLS - len(pins)
    for definition in listing.definitions:
        pin = pins.get(definition.tool)
        if pin is None:
            if room > 0:
                changed.append(
                    Pin(server=server, tool=definition.tool, state=PinState.PENDING, seen=definition, changed_ms=now_ms)
                )
            room -= 1
            continue
        if pin.state is PinState.PENDING and not reviewing:
            continue
        known = pin.approved or pin.seen
        event = PinEvent.SEEN_SAME if definition.digest == known.digest else PinEvent.SEEN_OTHER
        after = TRANSITIONS[pin.state, event]
        if after is not pin.state or definition.digest != pin.seen.digest:
            changed.append(msgspec.structs.replace(pin, state=after, seen=definition, changed_ms=now_ms))
    return changed


def approve(pin: Pin, digest: str, by: str, now_ms: int) -> Pin:
    """Approve the pin if ``digest``, of the reviewed definition, is that of the definition last seen."""
    if digest != pin.seen.digest:
        raise OtherDefinition(
            f"{pin.server}.{pin.tool} is not the definition that was reviewed", digest=pin.seen.digest
        )
    state = TRANSITIONS[pin.state, PinEvent.APPROVE]
    return msgspec.structs.replace(pin, state=state, approved=pin.seen, decided_by=by, changed_ms=now_ms)


def require_in_use(pin: Pin | None, tool: str, digest: str) -> ToolDefinition:
    """Return the definition that a call was decided on. Raise unless it is still in use."""
    if pin is None or pin.state is PinState.PENDING:
        raise NotReviewed(f"nobody has reviewed {tool}")
    definition = pin.in_use
    if definition is None or definition.digest != digest:
        raise DefinitionChanged(f"{tool} is in quarantine: its server describes it in another way than was reviewed")
    return definition
