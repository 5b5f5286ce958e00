"""What the protocol's server needs of the daemon it is a door of."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from palyra.errors import LimitExceeded
from palyra.executors.mcp_upstream.spec import DefinitionKind, ToolDefinition
from palyra.identity.api_tokens import TokenScope, authenticate
from palyra.ids import ApprovalId, CallId, Principal, RunId, ToolName
from palyra.pipeline.broker import cancel_with_caller
from palyra.pipeline.domain.approval import (
    AlreadyDecided,
    Approval,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalOutdated,
    ApprovalScope,
    UnknownApproval,
    Verdict,
)
from palyra.pipeline.domain.call import CallRecord, ToolRequestContext, UnknownTool, build_policy_request
from palyra.pipeline.domain.spec import AccessedResources, Arguments, ToolSpec
from palyra.pipeline.intake import CallRequest
from palyra.pipeline.store.approval_tables import decide, read_approval
from palyra.pipeline.store.call_tables import list_recent_calls, read_call
from palyra.policy.decision import Outcome
from palyra.server.mcp.elicitation import Answer

if TYPE_CHECKING:
    from palyra.server.context import ApiService


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


# The daemon's side of the protocol's door: callers, tools, calls, approvals and records, as everywhere else.

CHANNEL = "mcp"
_NOTHING = Arguments(value={}, canonical=b"{}", digest="")
# Answers about tools that are remembered: some hundred tools of some dozen principals.
MAX_REMEMBERED = 4096


class CallNews:
    """The journal's entries of one call, from now on."""

    def __init__(self, service: "ApiService", call_id: str) -> None:
        self._call_id = call_id
        self._open = contextlib.ExitStack()
        self._news = self._open.enter_context(service.store.subscribe())
        self._open.enter_context(service.streaming(self._news))

    def end(self) -> None:
        self._open.close()

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            try:
                event = await anext(self._news)
            except StopAsyncIteration:
                return
            except LimitExceeded:
                continue
            if event.call == self._call_id:
                yield event.kind


class McpDesk:
    def __init__(self, service: "ApiService", deciders: dict[str, str]) -> None:
        """``deciders`` are, by principal, the people in front of its clients."""
        self._service = service
        self._deciders = deciders
        self._listed: dict[tuple[str, str, str], tuple[ToolSpec, bool]] = {}

    def admit(self, token: str, speaks_for: str | None) -> Visitor:
        record = authenticate(self._service.store, token, self._service.clock.now_ms())
        record.require(TokenScope.CALL)
        if speaks_for is not None and speaks_for != record.principal:
            record.require(TokenScope.OPERATE)
        principal = Principal.parse(speaks_for or record.principal)
        return Visitor(principal=str(principal), actor=record.principal, token_id=record.token_id, run_id=record.run_id)

    async def tools(self, visitor: Visitor) -> list[ToolSpec]:
        await self._service.broker.refresh_catalog()
        found = [spec for spec in self._service.broker.catalog.specs() if self._might_call(visitor, spec)]
        behind = self._service.mcp_servers.offered()
        # What is offered as something else is not offered as a tool too.
        others = {name for name, (_, told) in behind.items() if told.kind is not DefinitionKind.TOOL}
        return [spec for spec in found if str(spec.name) not in others] if others else found

    def offers(self, visitor: Visitor, *kinds: DefinitionKind) -> list[BehindOffer]:
        found: list[BehindOffer] = []
        for name, (server, told) in sorted(self._service.mcp_servers.offered().items()):
            spec = self.spec(name) if told.kind in kinds else None
            if spec is not None and self._might_call(visitor, spec):
                found.append(BehindOffer(tool=spec.name, server=server, definition=told))
        return found

    def _might_call(self, visitor: Visitor, spec: ToolSpec) -> bool:
        """As policy answers for arguments that name nothing; a call is decided on its own arguments. The answer is
        the same until the policies, the settings or the tool are others."""
        key = (self._service.policy.bundle_digest, visitor.principal, str(spec.name))
        known = self._listed.get(key)
        if known is not None and known[0] is spec:
            return known[1]
        might = self._asked(visitor, spec)
        if len(self._listed) >= MAX_REMEMBERED:
            self._listed.clear()
        self._listed[key] = (spec, might)
        return might

    def _asked(self, visitor: Visitor, spec: ToolSpec) -> bool:
        config = self._service.broker.config
        context = ToolRequestContext(
            principal=Principal.parse(visitor.principal), actor=visitor.actor, channel=CHANNEL, run=""
        )
        question = build_policy_request(config, context, spec, _NOTHING, AccessedResources())
        return self._service.policy.decide(question).outcome is not Outcome.DENY

    def spec(self, tool: str) -> ToolSpec | None:
        try:
            return self._service.broker.catalog.entry(tool).spec
        except UnknownTool:
            return None

    async def call(self, visitor: Visitor, asked: ToolCall) -> CallRecord:
        broker = self._service.broker
        request = CallRequest(
            call_id=asked.call_id,
            tool=asked.tool,
            # As text: what the protocol library let through is parsed as strictly as anybody else's.
            arguments=msgspec.json.encode(asked.arguments),
            principal=Principal.parse(visitor.principal),
            actor=visitor.actor,
            channel=CHANNEL,
            run_id=asked.run_id,
            session=asked.session,
        )
        return await cancel_with_caller(broker, request)

    async def cancel(self, call_id: str) -> None:
        await self._service.broker.cancel(call_id)

    def following(self, call_id: str) -> "CallNews":
        return CallNews(self._service, call_id)

    async def approval(self, visitor: Visitor, approval_id: str) -> Approval:
        parsed = ApprovalId.parse(approval_id)
        approval = await asyncio.to_thread(read_approval, self._service.store, parsed)
        if approval.binding.principal != visitor.principal:
            raise UnknownApproval(f"there is no approval {parsed}")
        return approval

    def decider(self, visitor: Visitor, approval: Approval) -> str | None:
        person = self._deciders.get(visitor.principal)
        if person is None or person == approval.binding.principal:
            return None
        return person if self._service.may_decide_there(Principal.parse(person), approval, CHANNEL) else None

    async def decide(self, visitor: Visitor, approval: Approval, answer: Answer) -> None:
        verdict = Verdict(
            event=ApprovalEvent.APPROVE if answer is Answer.APPROVED else ApprovalEvent.DENY,
            by=self._deciders[visitor.principal],
            scope=ApprovalScope.ONCE,
            reason="answered in the client, through MCP",
            argument_digest=approval.binding.argument_digest,
            in_force=self._service.in_force(approval.binding.tool),
        )
        with contextlib.suppress(AlreadyDecided, ApprovalExpired, ApprovalOutdated):
            await self._service.store.transact(lambda tx: decide(tx, approval.id, verdict, actor=visitor.actor))
        self._service.broker.approval_waiters.ring(approval.id)

    async def call_record(self, visitor: Visitor, call_id: CallId) -> CallRecord:
        return await asyncio.to_thread(read_call, self._service.store, call_id, visitor.principal)

    async def calls_of_run(self, visitor: Visitor, run_id: RunId, most: int) -> list[CallRecord]:
        return await asyncio.to_thread(list_recent_calls, self._service.store, run_id, visitor.principal, most)
