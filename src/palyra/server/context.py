"""The services behind the routes, the caller of a request, and the questions that routes put to policy."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self
from weakref import WeakKeyDictionary

import msgspec

from palyra.clock import Clock
from palyra.errors import Denied, LimitExceeded
from palyra.identity.api_tokens import TokenRecord, TokenScope, Unauthenticated, authenticate
from palyra.ids import Principal
from palyra.limits import MAX_STREAMS_PER_PRINCIPAL, REJECTIONS_RECORDED_EVERY_SECONDS
from palyra.pipeline.broker import Broker
from palyra.pipeline.domain.approval import (
    Approval,
    ApprovalBinding,
    ApprovalScope,
    ApprovalState,
    InForce,
    SelfApproval,
    UnknownApproval,
)
from palyra.pipeline.domain.call import UnknownTool, build_tool_entity
from palyra.policy.decision import Decision, Outcome, PolicyPort
from palyra.policy.request import GATEWAY, Entity, EntityDirectory, PolicyRequest
from palyra.store.event import Event, NewEvent
from palyra.store.port import Reader, Store

if TYPE_CHECKING:
    from starlette.requests import Request

    from palyra.executors.browser.operator_service import BrowserOperatorService
    from palyra.executors.mcp_upstream.executor import McpServers
    from palyra.executors.wasm.channels import ChannelHub, Listening
    from palyra.fleet.domain.commands import FleetCommand, FleetDecision
    from palyra.fleet.domain.worker import WorkerRecord
    from palyra.fleet.server.lease_service import OutputTails
    from palyra.fleet.store.port import FleetLedger
    from palyra.identity.identity_manager import IdentityManager
    from palyra.nodes.pairing.service import PairingService
    from palyra.nodes.server.paired_devices import PairedDevices
    from palyra.pipeline.argument_archive import ArgumentArchive
    from palyra.server.mcp.transports import McpTransport
    from palyra.skills.package.capabilities import Capabilities
    from palyra.skills.registry.registry import SkillRegistry
    from palyra.skills.trust.capability_difference import GetsLess
    from palyra.vault.vault import Vault

# What a policy permits a person to do through this server, beside calls of tools.
Action = Literal[
    "browser.manage",
    "config.change",
    "console.administer",
    "console.operate",
    "console.view",
    "device.manage",
    "device.pair",
    "identity.manage",
    "journal.read",
    "skill.manage",
    "status.read",
    "vault.manage",
    "vault.reveal",
]

# Keys in a request's scope, under which the listener takes the principal of a valid token, and that a body stays open.
ADMITTED: Final = "palyra.admitted"
STAYS_OPEN: Final = "palyra.stays_open"


class ActionDenied(Denied):
    code = "action.denied"
    hint = "the setting access.operators, or a policy of yours, says who may do this"


class StreamPlace:
    """A place among the streams of a principal. A stream refers to it even if its client leaves before it starts."""


class TooManyStreams(LimitExceeded):
    code = "http.too_many_streams"
    hint = "close streams of events that are not in use"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of the token of one request."""

    token: TokenRecord
    principal: Principal

    @property
    def actor(self) -> str:
        return str(self.principal)

    @property
    def operates(self) -> bool:
        return TokenScope.OPERATE in self.token.scopes

    def on_behalf_of(self, principal: str | None) -> Principal:
        """Return the principal that a request names. Only a token with the scope ``operate`` may name another one."""
        if principal is None or principal == str(self.principal):
            return self.principal
        self.token.require(TokenScope.OPERATE)
        return Principal.parse(principal)

    def sees(self) -> str | None:
        """Return the principal whose calls and runs this caller may see; None stands for all."""
        return None if self.operates else str(self.principal)


def bearer_token(headers: Mapping[str, str]) -> str:
    scheme, _, raw = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not raw.strip():
        raise Unauthenticated("this needs a token")
    return raw.strip()


def note_admitted(scope: Mapping[str, Any], principal: str) -> None:
    """Tell the listener that a request showed a valid token: past its bound, connections without one close first."""
    note: Callable[[str], None] | None = scope.get(ADMITTED)
    if note is not None:
        note(principal)


def note_open_body(scope: Mapping[str, Any]) -> None:
    """Tell the listener that the request's body ends when its client does, as that of ``palyra mcp``."""
    note: Callable[[], None] | None = scope.get(STAYS_OPEN)
    if note is not None:
        note()


def authenticate_request(request: "Request", reader: Reader, clock: Clock) -> Caller:
    record = authenticate(reader, bearer_token(request.headers), clock.now_ms())
    note_admitted(request.scope, record.principal)
    return Caller(token=record, principal=Principal.parse(record.principal))


class EventStream(Protocol):
    """Events as they are committed. It raises LimitExceeded after it lost some: the reader then reads the table."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    async def __anext__(self) -> Event: ...

    def close(self) -> None: ...


class ApiStore(Store, Protocol):
    def events_since(self, seq: int, *, limit: int, call: str = "") -> list[Event]: ...

    def subscribe(self) -> EventStream: ...


class DeviceServices(Protocol):
    @property
    def node_service(self) -> "PairedDevices": ...

    @property
    def pairing(self) -> "PairingService": ...


class Fleet(Protocol):
    @property
    def ledger(self) -> "FleetLedger": ...

    @property
    def output(self) -> "OutputTails": ...

    async def decide(self, command: "FleetCommand") -> "FleetDecision": ...

    async def remove(self, worker_id: str, *, reason: str, actor: str) -> None: ...

    def workers(self) -> "list[WorkerRecord]": ...


class RejectedTokens:
    """Counts rejected tokens. The journal gets one event with their number at most once a minute."""

    def __init__(self) -> None:
        self._count = 0
        self._recorded = float("-inf")

    def note(self, now: float) -> int:
        """Count one, and return how many to record now, or 0."""
        self._count += 1
        if now - self._recorded < REJECTIONS_RECORDED_EVERY_SECONDS:
            return 0
        self._recorded = now
        count, self._count = self._count, 0
        return count


@dataclass(frozen=True, kw_only=True)
class ApiService:
    """The services that routes use. A callable makes its service when the first request needs it."""

    store: ApiStore
    broker: Broker
    policy: PolicyPort
    clock: Clock
    vault: "Callable[[], Vault]"
    arguments: "ArgumentArchive"
    skills: "Callable[[], SkillRegistry]"
    prepare_skills: Callable[[], Awaitable[None]]
    # Returns the capabilities of a manifest that the settings do not grant in full.
    gets_less: "Callable[[Capabilities], tuple[GetsLess, ...]]"
    identity: "Callable[[], IdentityManager]"
    nodes: "Callable[[], Awaitable[DeviceServices]]"
    workers: "Callable[[], Fleet]"
    browser: "Callable[[], BrowserOperatorService]"
    channels: "Callable[[], ChannelHub]"
    mcp: "Callable[[], McpTransport]"
    mcp_servers: "Callable[[], McpServers]"
    status: Callable[[], dict[str, Any]]
    metrics: Callable[[], bytes]
    ready: Callable[[], list[str]]
    on_rejected: Callable[[], None]
    channel: str = "api"
    rejected: RejectedTokens = field(default_factory=RejectedTokens)
    streams: "set[EventStream | Listening]" = field(default_factory=set)
    places: "WeakKeyDictionary[StreamPlace, str]" = field(default_factory=WeakKeyDictionary)

    def with_channel(self, channel: str) -> "ApiService":
        """Return these services for another channel, which policy sees in each question."""
        return replace(self, channel=channel)

    def caller(self, request: "Request") -> Caller:
        return authenticate_request(request, self.store, self.clock)

    async def note_rejected(self) -> None:
        self.on_rejected()
        count = self.rejected.note(self.clock.monotonic())
        if count:
            event = NewEvent(kind="credential.rejected", actor="palyrad", payload={"count": count})
            await self.store.transact(lambda tx: tx.append(event))

    @contextmanager
    def streaming(self, stream: "EventStream | Listening") -> Iterator[None]:
        """Let ``end_streams`` close the stream while the block runs."""
        self.streams.add(stream)
        try:
            yield
        finally:
            self.streams.discard(stream)

    def take_place(self, caller: Caller) -> "StreamPlace":
        """Take a place of the principal's share of streams. It is free again once nothing refers to it."""
        own = sum(each == caller.actor for each in self.places.values())
        if own >= MAX_STREAMS_PER_PRINCIPAL:
            raise TooManyStreams(f"{caller.actor} follows {own} calls, all of its share", share=own)
        place = StreamPlace()
        self.places[place] = caller.actor
        return place

    def end_streams(self) -> None:
        for stream in tuple(self.streams):
            stream.close()

    def admit_operator(self, request: "Request", action: Action, **context: Any) -> Caller:
        """Return the caller of a request, if they may do the action on this daemon."""
        caller = self.caller(request)
        self.require_operator(caller, action, **context)
        return caller

    def require_operator(
        self, caller: Caller, action: Action, resource: Entity = GATEWAY, **context: Any
    ) -> tuple[str, ...]:
        """Refuse a caller without the scope ``operate``, or whom policy denies the action. Return the policies."""
        caller.token.require(TokenScope.OPERATE)
        return self._require(caller.principal, action, resource, **context)

    def require_permitted(self, caller: Caller, action: Action) -> None:
        """Refuse a caller whom policy denies the action. Their token needs no scope for it."""
        self._require(caller.principal, action, GATEWAY)

    def require_decider(self, caller: Caller, decider: Principal, approval: Approval, scope: str) -> None:
        """Refuse a decision by the requester: the decider and the holder of the token are other people."""
        for person in (decider, caller.principal):
            if str(person) == approval.binding.principal:
                raise SelfApproval(f"{person} asked for this and cannot decide it", id=approval.id)
        requester = approval.binding.principal
        self._require(decider, "approval.decide", self._tool_of(approval), requester=requester, scope=scope)

    def may_decide(self, decider: Principal, approval: Approval, channel: str) -> bool:
        """Return whether policy lets this person decide the request once, through that channel."""
        if str(decider) == approval.binding.principal:
            return False
        context = {"requester": approval.binding.principal, "scope": ApprovalScope.ONCE.value}
        decision = self._decide(decider, "approval.decide", self._tool_of(approval), channel, context)
        return decision.outcome is Outcome.ALLOW

    def in_force(self, binding: ApprovalBinding) -> InForce:
        """Return what the principal's calls of this tool are bound to now."""
        try:
            digest = self.broker.catalog.entry(binding.tool).spec.digest
        except UnknownTool:
            digest = None
        workspace = self.broker.config.workspaces.find(Principal.parse(binding.principal))
        return InForce(bundle_digest=self.policy.bundle_digest, workspace=workspace, skill=digest)

    def outdated(self, approval: Approval) -> str:
        """Return why a pending or standing approval covers no call that is made now; empty if it does."""
        if approval.state not in (ApprovalState.PENDING, ApprovalState.APPROVED):
            return ""
        return self.in_force(approval.binding).changed_since(approval.binding)

    def require_visible(self, caller: Caller, approval: Approval) -> None:
        if not caller.operates and approval.binding.principal != str(caller.principal):
            raise UnknownApproval(f"there is no approval {approval.id}")

    def _tool_of(self, approval: Approval) -> Entity:
        return build_tool_entity(self._directory, self.broker.catalog.entry(approval.binding.tool).spec)

    @property
    def _directory(self) -> EntityDirectory:
        return self.broker.config.directory

    def _require(self, principal: Principal, action: str, resource: Entity, **context: Any) -> tuple[str, ...]:
        decision = self._decide(principal, action, resource, self.channel, context)
        if decision.outcome is not Outcome.ALLOW:
            raise ActionDenied(
                f"policy does not let {principal} do {action}: {', '.join(decision.reasons)}",
                policies=list(decision.policies),
            )
        return decision.policies

    def _decide(
        self, principal: Principal, action: str, resource: Entity, channel: str, context: dict[str, Any]
    ) -> Decision:
        entity = self._directory.channel(channel)
        return self.policy.decide(
            PolicyRequest(
                principal=self._directory.principal(principal),
                action=action,
                resource=resource,
                # An action of a person is no tool call: it has no approval to wait for.
                context={"approved": True, "channel": entity.uid, **context},
                entities=(entity,),
            )
        )
