"""What the routes work with: the daemon's parts as they need them, and the questions they put to policy."""

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

from palyra.clock import Clock
from palyra.errors import Denied
from palyra.identity.api_tokens import TokenScope
from palyra.ids import Principal
from palyra.limits import REJECTIONS_RECORDED_EVERY_SECONDS
from palyra.pipeline.broker import Broker
from palyra.pipeline.domain.approval import (
    Approval,
    ApprovalScope,
    ApprovalState,
    InForce,
    SelfApproval,
    UnknownApproval,
)
from palyra.pipeline.domain.call import UnknownTool, build_tool_entity
from palyra.policy.decision import Decision, Outcome, PolicyPort
from palyra.policy.entities import GATEWAY, Entity, EntityDirectory
from palyra.policy.request import PolicyRequest
from palyra.server.access import Caller, caller_of
from palyra.store.event import Event, NewEvent
from palyra.store.port import Store
from palyra.vault.access import VAULT_MANAGE, VAULT_REVEAL, secret_entity
from palyra.vault.reference import SecretRef

if TYPE_CHECKING:
    from starlette.requests import Request

    from palyra.browser.domain.session_api import LiveFrame, OperatorInput, SessionEvent
    from palyra.executors.mcp_upstream.pinning import Pin
    from palyra.executors.mcp_upstream.settings import ServerPlan
    from palyra.executors.mcp_upstream.spec import Listing, ToolDefinition
    from palyra.fleet.domain.commands import FleetCommand, FleetDecision
    from palyra.fleet.domain.worker import WorkerRecord
    from palyra.fleet.server.lease_service import OutputTails
    from palyra.fleet.store.port import FleetLedger
    from palyra.identity.identity_manager import IdentityManager
    from palyra.nodes.pairing.service import PairingDesk
    from palyra.nodes.server.node_service import NodeDesk
    from palyra.server.http.openapi import DescribedRoute
    from palyra.server.mcp.transports import ProtocolDoor
    from palyra.skills.package.capabilities import Capabilities
    from palyra.skills.registry.registry import SkillRegistry
    from palyra.skills.trust.capability_difference import GetsLess
    from palyra.vault.vault import Vault


class ActionDenied(Denied):
    code = "action.denied"
    hint = "the setting access.operators, or a policy of yours, says who may do this"


class News(Protocol):
    """Events as they are recorded. Raises LimitExceeded after some were lost: then the table has to be read."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    async def __anext__(self) -> Event: ...

    def close(self) -> None: ...


class Message(Protocol):
    @property
    def seq(self) -> int: ...


class Listening(Protocol):
    """Messages on one channel as they are sent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    async def __anext__(self) -> Message: ...

    def close(self) -> None: ...


class Channels(Protocol):
    def listen(self, channel: str) -> Listening | None:
        """None when there are as many listeners as there may be."""


class DeviceDesks(Protocol):
    @property
    def desk(self) -> "NodeDesk": ...

    @property
    def pairing(self) -> "PairingDesk": ...


class Fleet(Protocol):
    """The workers, their leases, and what an operator does with them."""

    @property
    def ledger(self) -> "FleetLedger": ...

    @property
    def output(self) -> "OutputTails": ...

    async def decide(self, command: "FleetCommand") -> "FleetDecision": ...

    async def remove(self, worker_id: str, *, reason: str, actor: str) -> None: ...

    def workers(self) -> "list[WorkerRecord]": ...


class ServersBehind(Protocol):
    """The MCP servers behind Palyra, what they offer, and what of it was reviewed."""

    def servers(self) -> "dict[str, tuple[ServerPlan, dict[str, Pin]]]": ...

    def server(self, name: str) -> "tuple[ServerPlan, dict[str, Pin]]": ...

    def offered(self) -> "dict[str, tuple[str, ToolDefinition]]": ...

    async def look(self, server: str, *, actor: str) -> "Listing": ...

    async def approve(self, server: str, tools: Mapping[str, str], *, by: str, actor: str) -> "list[Pin]": ...


class Browsers(Protocol):
    """What an operator does with browser sessions, their downloads and profiles. ``actor`` is that operator."""

    async def sessions(self, actor: str) -> list[dict[str, Any]]: ...

    async def session(self, session_id: str, actor: str) -> dict[str, Any]: ...

    async def close(self, session_id: str, actor: str) -> dict[str, Any]: ...

    async def downloads(self, session_id: str, actor: str) -> list[dict[str, Any]]: ...

    async def release(self, session_id: str, download_id: str, actor: str) -> dict[str, Any]: ...

    async def delete(self, session_id: str, download_id: str, actor: str) -> dict[str, Any]: ...

    async def take_over(self, session_id: str, actor: str, reason: str) -> dict[str, Any]: ...

    async def hand_back(self, session_id: str, actor: str) -> dict[str, Any]: ...

    async def events(self, session_id: str, actor: str) -> list[dict[str, Any]]: ...

    def watch(self, session_id: str, actor: str) -> "AsyncIterator[LiveFrame | SessionEvent]":
        """Pictures and events as they come, until the session ends."""

    async def operate(self, session_id: str, actor: str, inputs: "Sequence[OperatorInput]") -> None:
        """What the person who took the session over does in it."""

    async def profiles(self, actor: str) -> list[dict[str, Any]]: ...

    async def create_profile(
        self, principal: Principal, name: str, actor: str, *, colour: str = "", private: bool = False
    ) -> dict[str, Any]: ...

    async def delete_profile(self, profile_id: str, actor: str) -> dict[str, Any]: ...

    async def reset_profile(self, profile_id: str, actor: str) -> dict[str, Any]: ...

    @property
    def profiles_rolled_back(self) -> bool:
        """Whether the profiles that were listed last are an older copy, which nobody uses."""

    async def accept_profiles(self, actor: str) -> dict[str, Any]: ...


class ApiStore(Store, Protocol):
    def events_since(self, seq: int, *, limit: int, call: str = "") -> list[Event]: ...

    def subscribe(self) -> News: ...


class ApiService:
    def __init__(
        self,
        *,
        store: ApiStore,
        broker: Broker,
        vault: "Callable[[], Vault]",
        skills: "Callable[[], SkillRegistry]",
        prepare_skills: Callable[[], Awaitable[None]],
        gets_less: "Callable[[Capabilities], tuple[GetsLess, ...]]",
        identity: "Callable[[], IdentityManager]",
        nodes: "Callable[[], Awaitable[DeviceDesks]]",
        workers: "Callable[[], Fleet]",
        browser: Callable[[], Browsers],
        channels: Callable[[], Channels],
        mcp: "Callable[[], ProtocolDoor]",
        mcp_servers: Callable[[], ServersBehind],
        policy: PolicyPort,
        clock: Clock,
        status: Callable[[], dict[str, Any]],
        metrics: Callable[[], bytes],
        ready: Callable[[], list[str]],
        on_rejected: Callable[[], None] = lambda: None,
        channel: str = "api",
    ) -> None:
        self.store = store
        self.broker = broker
        # Made when a request is about them.
        self._vault = vault
        self._skills = skills
        self._browser = browser
        self._channels = channels
        self._mcp_servers = mcp_servers
        self.prepare_skills = prepare_skills
        # What of a manifest's request the settings do not give.
        self.gets_less = gets_less
        self.identity = identity
        self.nodes = nodes
        self.workers = workers
        self.mcp = mcp
        self.policy = policy
        self.clock = clock
        self.status = status
        self.metrics = metrics
        self.ready = ready
        self.channel = channel
        # Routes of other doors of this daemon, for the one document that tells of all of them.
        self.described_elsewhere: Callable[[], Iterable[DescribedRoute]] = tuple
        self.openapi: bytes | None = None
        self._streams: set[News | Listening] = set()
        self._rejected = 0
        self._rejections_recorded = float("-inf")
        self._on_rejected = on_rejected

    @property
    def vault(self) -> "Vault":
        return self._vault()

    @property
    def skills(self) -> "SkillRegistry":
        return self._skills()

    @property
    def browser(self) -> Browsers:
        return self._browser()

    @property
    def channels(self) -> Channels:
        return self._channels()

    @property
    def mcp_servers(self) -> ServersBehind:
        return self._mcp_servers()

    def through(self, channel: str) -> "ApiService":
        """The same service for another door: policy is told that requests come through ``channel``."""
        other = copy.copy(self)
        other.channel = channel
        return other

    def caller(self, request: "Request") -> Caller:
        return caller_of(request, self.store, self.clock)

    async def note_rejected(self) -> None:
        """Counts a rejected token, and records now and then how many there were."""
        self._on_rejected()
        self._rejected += 1
        now = self.clock.monotonic()
        if now - self._rejections_recorded >= REJECTIONS_RECORDED_EVERY_SECONDS:
            self._rejections_recorded = now
            count, self._rejected = self._rejected, 0
            event = NewEvent(kind="credential.rejected", actor="palyrad", payload={"count": count})
            await self.store.transact(lambda tx: tx.append(event))

    @contextmanager
    def streaming(self, news: News | Listening) -> Iterator[None]:
        self._streams.add(news)
        try:
            yield
        finally:
            self._streams.discard(news)

    def end_streams(self) -> None:
        for news in tuple(self._streams):
            news.close()

    def require_decider(self, caller: Caller, decider: Principal, approval: Approval, scope: str) -> None:
        """Neither the one who decides nor the one who holds the token may be the one who asked."""
        for person in (decider, caller.principal):
            if str(person) == approval.binding.principal:
                raise SelfApproval(f"{person} asked for this and cannot decide it", id=approval.id)
        self._require(
            decider,
            "approval.decide",
            self._tool_of(approval),
            requester=approval.binding.principal,
            scope=scope,
        )

    def may_decide_there(self, decider: Principal, approval: Approval, channel: str) -> bool:
        """Whether policy lets this person decide the request once, where they are asked: through that channel."""
        if str(decider) == approval.binding.principal:
            return False
        context = {"requester": approval.binding.principal, "scope": ApprovalScope.ONCE.value}
        decision = self._decided(decider, "approval.decide", self._tool_of(approval), channel, context)
        return decision.outcome is Outcome.ALLOW

    def in_force(self, tool: str) -> InForce:
        """What a call of this tool that is made now is bound to."""
        try:
            digest = self.broker.catalog.entry(tool).spec.digest
        except UnknownTool:
            digest = None
        return InForce(bundle_digest=self.policy.bundle_digest, workspace=self.broker.config.workspace, skill=digest)

    def outdated(self, approval: Approval) -> str:
        """Why this request, or this yes that stands, covers no call that is made now; or nothing."""
        if approval.state not in (ApprovalState.PENDING, ApprovalState.APPROVED):
            return ""
        return self.in_force(approval.binding.tool).changed_since(approval.binding)

    def _tool_of(self, approval: Approval) -> Entity:
        return build_tool_entity(self._directory, self.broker.catalog.entry(approval.binding.tool).spec)

    def require_visible(self, caller: Caller, approval: Approval) -> None:
        if not caller.operates and approval.binding.principal != str(caller.principal):
            raise UnknownApproval(f"there is no approval {approval.id}")

    def require_config_change(self, caller: Caller) -> None:
        caller.token.require(TokenScope.OPERATE)
        self._require(caller.principal, "config.change", GATEWAY)

    def require_vault_manager(self, caller: Caller, ref: SecretRef | None = None) -> None:
        """``ref`` is None for what concerns the vault as a whole."""
        caller.token.require(TokenScope.OPERATE)
        self._require(caller.principal, VAULT_MANAGE, GATEWAY if ref is None else secret_entity(ref))

    def require_vault_reader(self, caller: Caller, ref: SecretRef) -> tuple[str, ...]:
        """The policies that let this person see the secret's value."""
        caller.token.require(TokenScope.OPERATE)
        return self._require(caller.principal, VAULT_REVEAL, secret_entity(ref))

    def require_skill_manager(self, caller: Caller) -> None:
        caller.token.require(TokenScope.OPERATE)
        self._require(caller.principal, "skill.manage", GATEWAY)

    def require_identity_manager(self, caller: Caller) -> None:
        caller.token.require(TokenScope.OPERATE)
        self._require(caller.principal, "identity.manage", GATEWAY)

    def require_pairing_operator(self, caller: Caller, kind: str = "any") -> None:
        """``kind`` of device, where one is let in."""
        caller.token.require(TokenScope.OPERATE)
        self._require(caller.principal, "device.pair", GATEWAY, kind=kind)

    def require_device_manager(self, caller: Caller) -> None:
        caller.token.require(TokenScope.OPERATE)
        self._require(caller.principal, "device.manage", GATEWAY)

    def require_browser_manager(self, caller: Caller) -> None:
        caller.token.require(TokenScope.OPERATE)
        self._require(caller.principal, "browser.manage", GATEWAY)

    def require_channel_listener(self, caller: Caller) -> None:
        """What skills say is part of the record."""
        self._require(caller.principal, "journal.read", GATEWAY)

    def require_status(self, caller: Caller) -> None:
        self._require(caller.principal, "status.read", GATEWAY)

    def require_console(self, caller: Caller, action: str) -> None:
        """``console.view``, ``console.operate`` or ``console.administer``."""
        self._require(caller.principal, action, GATEWAY)

    @property
    def _directory(self) -> EntityDirectory:
        return self.broker.config.directory

    def _require(self, principal: Principal, action: str, resource: Entity, **context: Any) -> tuple[str, ...]:
        decision = self._decided(principal, action, resource, self.channel, context)
        if decision.outcome is not Outcome.ALLOW:
            raise ActionDenied(
                f"policy does not let {principal} do {action}: {', '.join(decision.reasons)}",
                policies=list(decision.policies),
            )
        return decision.policies

    def _decided(
        self, principal: Principal, action: str, resource: Entity, channel: str, context: dict[str, Any]
    ) -> Decision:
        door = self._directory.channel(channel)
        return self.policy.decide(
            PolicyRequest(
                principal=self._directory.principal(principal),
                action=action,
                resource=resource,
                # A person acting is nobody's tool call: there is nothing to approve about it.
                context={"approved": True, "channel": door.uid, **context},
                entities=(door,),
            )
        )
