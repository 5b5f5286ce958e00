"""The daemon's side of the protocol: callers, tools, calls, approvals and records."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from palyra.errors import LimitExceeded
from palyra.executors.mcp_upstream.spec import DefinitionKind, ToolDefinition
from palyra.identity.api_tokens import TokenScope, authenticate
from palyra.ids import ApprovalId, CallId, Principal, RunId, ToolName
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
from palyra.pipeline.domain.call import CallRecord, CallRequest, ToolRequestContext, UnknownTool, build_policy_request
from palyra.pipeline.domain.spec import AccessedResources, Arguments, ToolSpec
from palyra.pipeline.execute import cancel_with_caller
from palyra.pipeline.store.approval_tables import decide, read_approval
from palyra.pipeline.store.call_tables import list_recent_calls, read_call
from palyra.policy.decision import Outcome
from palyra.server.mcp.client_view import UserAnswer

if TYPE_CHECKING:
    from palyra.server.context import ApiService


CHANNEL = "mcp"
_NO_ARGUMENTS = Arguments(value={}, canonical=b"{}", digest="")
# Decisions to list a tool that are kept: some hundred tools of some dozen principals.
MAX_LISTED_DECISIONS = 4096


class McpCaller(msgspec.Struct, frozen=True, kw_only=True):
    """A client of the protocol. ``principal`` makes the calls, ``actor`` holds the token.

    ``run_id`` is set for a token that works in one run only.
    """

    principal: str
    actor: str
    token_id: str
    run_id: str = ""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    call_id: CallId
    tool: str
    arguments: dict[str, Any]
    run_id: RunId
    session: str


class UpstreamOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A reviewed prompt or resource of an upstream server. A call of ``tool`` gets it."""

    tool: ToolName
    server: str
    definition: ToolDefinition


class CallEvents:
    """The kinds of a call's journal events, as they are committed."""

    def __init__(self, service: "ApiService", call_id: str) -> None:
        self._call_id = call_id
        self._open = contextlib.ExitStack()
        self._events = self._open.enter_context(service.store.subscribe())
        self._open.enter_context(service.streaming(self._events))

    def end(self) -> None:
        self._open.close()

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            try:
                event = await anext(self._events)
            except StopAsyncIteration:
                return
            except LimitExceeded:
                continue
            if event.call == self._call_id:
                yield event.kind


class McpBackend:
    """The daemon's services for the protocol's handlers. Another principal's calls and approvals look missing."""

    def __init__(self, service: "ApiService", deciders: dict[str, str]) -> None:
        """``deciders`` maps a principal to the person in front of its client."""
        self._service = service
        self._deciders = deciders
        self._listed: dict[tuple[str, str, str], tuple[ToolSpec, bool]] = {}

    def admit(self, token: str, on_behalf_of: str | None) -> McpCaller:
        """Check the token now, so that a revoked one is refused in the middle of a session."""
        record = authenticate(self._service.store, token, self._service.clock.now_ms())
        record.require(TokenScope.CALL)
        if on_behalf_of is not None and on_behalf_of != record.principal:
            record.require(TokenScope.OPERATE)
        principal = str(Principal.parse(on_behalf_of or record.principal))
        return McpCaller(principal=principal, actor=record.principal, token_id=record.token_id, run_id=record.run_id)

    async def tools(self, caller: McpCaller) -> list[ToolSpec]:
        """Return the tools that policy might let this caller call, without upstream prompts and resources."""
        await self._service.broker.refresh_catalog()
        offered = self._service.mcp_servers().offered()
        others = {name for name, (_, definition) in offered.items() if definition.kind is not DefinitionKind.TOOL}
        return [
            spec
            for spec in self._service.broker.catalog.specs()
            if str(spec.name) not in others and self._might_call(caller, spec)
        ]

    def offers(self, caller: McpCaller, *kinds: DefinitionKind) -> list[UpstreamOffer]:
        """Return the upstream prompts or resources that policy might let this caller read, by name."""
        found: list[UpstreamOffer] = []
        for name, (server, definition) in sorted(self._service.mcp_servers().offered().items()):
            spec = self.spec(name) if definition.kind in kinds else None
            if spec is not None and self._might_call(caller, spec):
                found.append(UpstreamOffer(tool=spec.name, server=server, definition=definition))
        return found

    def _might_call(self, caller: McpCaller, spec: ToolSpec) -> bool:
        """Return whether policy permits a call with empty arguments. A real call is decided on its own arguments.

        The decision is kept until the policies, the settings or the tool change.
        """
        key = (self._service.policy.bundle_digest, caller.principal, str(spec.name))
        known = self._listed.get(key)
        if known is not None and known[0] is spec:
            return known[1]
        permitted = self._is_permitted(caller, spec)
        if len(self._listed) >= MAX_LISTED_DECISIONS:
            self._listed.clear()
        self._listed[key] = (spec, permitted)
        return permitted

    def _is_permitted(self, caller: McpCaller, spec: ToolSpec) -> bool:
        config = self._service.broker.config
        principal = Principal.parse(caller.principal)
        workspace = config.workspaces.find(principal)
        if not workspace:
            return False
        context = ToolRequestContext(
            principal=principal, actor=caller.actor, channel=CHANNEL, run="", workspace=workspace
        )
        request = build_policy_request(config, context, spec, _NO_ARGUMENTS, AccessedResources())
        return self._service.policy.decide(request).outcome is not Outcome.DENY

    def spec(self, tool: str) -> ToolSpec | None:
        try:
            return self._service.broker.catalog.entry(tool).spec
        except UnknownTool:
            return None

    async def call(self, caller: McpCaller, call: ToolCall) -> CallRecord:
        request = CallRequest(
            call_id=call.call_id,
            tool=call.tool,
            # As JSON text, so that the strict parser checks what the protocol's library accepted.
            arguments=msgspec.json.encode(call.arguments),
            principal=Principal.parse(caller.principal),
            actor=caller.actor,
            channel=CHANNEL,
            run_id=call.run_id,
            session=call.session,
        )
        return await cancel_with_caller(self._service.broker, request)

    def follow(self, call_id: str) -> CallEvents:
        return CallEvents(self._service, call_id)

    async def approval(self, caller: McpCaller, approval_id: str) -> Approval:
        parsed = ApprovalId.parse(approval_id)
        approval = await asyncio.to_thread(read_approval, self._service.store, parsed)
        if approval.binding.principal != caller.principal:
            raise UnknownApproval(f"there is no approval {parsed}")
        return approval

    def decider(self, caller: McpCaller, approval: Approval) -> str | None:
        """Return the person in front of this client, if policy lets them decide the approval."""
        person = self._deciders.get(caller.principal)
        if person is None or person == approval.binding.principal:
            return None
        return person if self._service.may_decide(Principal.parse(person), approval, CHANNEL) else None

    async def decide(self, caller: McpCaller, approval: Approval, answer: UserAnswer) -> None:
        verdict = Verdict(
            event=ApprovalEvent.APPROVE if answer is UserAnswer.APPROVED else ApprovalEvent.DENY,
            by=self._deciders[caller.principal],
            scope=ApprovalScope.ONCE,
            reason="answered in the client, through MCP",
            argument_digest=approval.binding.argument_digest,
            in_force=self._service.in_force(approval.binding),
        )
        with contextlib.suppress(AlreadyDecided, ApprovalExpired, ApprovalOutdated):
            await self._service.store.transact(lambda tx: decide(tx, approval.id, verdict, actor=caller.actor))
        self._service.broker.approval_waiters.notify(approval.id)

    async def call_record(self, caller: McpCaller, call_id: CallId) -> CallRecord:
        return await asyncio.to_thread(read_call, self._service.store, call_id, caller.principal)

    async def calls_of_run(self, caller: McpCaller, run_id: RunId, most: int) -> list[CallRecord]:
        """Return the newest calls of a run first."""
        return await asyncio.to_thread(list_recent_calls, self._service.store, run_id, caller.principal, most)
