"""What the protocol's server needs of the daemon it is a door of."""

from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec

from palyra.ids import CallId, RunId
from palyra.mcp.behind.definition import DefinitionKind, ToolDefinition
from palyra.mcp.continuation import Answer
from palyra.tools.approval import Approval
from palyra.tools.record import CallRecord
from palyra.tools.spec import ToolName, ToolSpec


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Who is at the door: on whose behalf calls are made, and whose token it is."""

    principal: str
    actor: str
    token_id: str
    # A token that works in one run only names it.
    run_id: str = ""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    call_id: CallId
    tool: str
    arguments: dict[str, Any]
    run_id: RunId
    session: str


class BehindOffer(msgspec.Struct, frozen=True, kw_only=True):
    """What a server behind Palyra offers beside tools, as it was reviewed. ``tool`` is what asks for it."""

    tool: ToolName
    server: str
    definition: ToolDefinition


class News(Protocol):
    """The kinds of a call's journal entries as they are written."""

    def __aiter__(self) -> AsyncIterator[str]: ...

    def end(self) -> None:
        """What is there already is still handed out, and then it is over."""


class Desk(Protocol):
    """Every method raises Palyra's own errors, also for what is somebody else's."""

    def admit(self, token: str, speaks_for: str | None) -> Visitor:
        """Who holds the token, checked now: one that was revoked meanwhile is not admitted again."""

    async def tools(self, visitor: Visitor) -> list[ToolSpec]:
        """Those that policy might let this visitor call."""

    def offers(self, visitor: Visitor, *kinds: DefinitionKind) -> list[BehindOffer]:
        """Those that policy might let this visitor ask for, in the order of their names."""

    def spec(self, tool: str) -> ToolSpec | None: ...

    async def call(self, visitor: Visitor, asked: ToolCall) -> CallRecord: ...

    async def cancel(self, call_id: str) -> None:
        """Ends the call and returns when its end is on record."""

    def following(self, call_id: str) -> News: ...

    async def approval(self, visitor: Visitor, approval_id: str) -> Approval: ...

    def decider(self, visitor: Visitor, approval: Approval) -> str | None:
        """The person in front of this visitor's client, where policy lets them decide this; None otherwise."""

    async def decide(self, visitor: Visitor, approval: Approval, answer: Answer) -> None: ...

    async def call_record(self, visitor: Visitor, call_id: CallId) -> CallRecord: ...

    async def calls_of_run(self, visitor: Visitor, run_id: RunId, most: int) -> list[CallRecord]:
        """The newest first."""
