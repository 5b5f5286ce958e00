"""The egress proxy of a worker: the same proxy as the daemon's, with listeners for the leases that the daemon granted.

The daemon's grant and the proxy's own policy both apply. The worker only names leases and hands over sockets.
"""

import asyncio
import contextlib
import logging
import socket
from dataclasses import KW_ONLY, dataclass
from typing import Final

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.device_folder import PairingFolder
from palyra.egress.domain.events import EgressEvent, Refused, Resolver
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.rules import parse_rules
from palyra.egress.limits import ProxyLimits
from palyra.egress.protocols.dns import SyntheticNames
from palyra.egress.proxy.dial import Upstream
from palyra.egress.proxy.server import CallListener, EgressProxy, ListeningSocket
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.domain.attestation import EgressBinding
from palyra.fleet.domain.signed_statement import DeviceSigner, sign_statement
from palyra.fleet.egress.handover_protocol import BindingReply, GrantReply, Kind, UsageReply
from palyra.fleet.egress.leases import LeaseAccess, LeaseOver, LeaseRef, LeaseRegistry, Orders, OtherWorker
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.egress.violations import ViolationReports, find_late_request, find_violation

log = logging.getLogger("palyra.egress")
WORKER_FILE: Final = "egress-worker.v1.json"


class WorkerPin:
    """The one worker of this proxy, stored in its folder."""

    def __init__(self, folder: PairingFolder, worker_id: str = "") -> None:
        self._folder = folder
        kept = folder.read(WORKER_FILE, limits.MAX_FIELD_CHARS * 2)
        self.worker_id = worker_id or (msgspec.json.decode(kept, type=str) if kept else "")

    def __call__(self, worker_id: str) -> bool:
        """Tell whether this is the worker. The first one that asks becomes it."""
        if not self.worker_id and worker_id:
            self._folder.folder.write_atomic(WORKER_FILE, msgspec.json.encode(worker_id))
            self.worker_id = worker_id
        return bool(worker_id) and worker_id == self.worker_id


@dataclass(eq=False)
class WorkerEgress:
    policy: WorkerEgressPolicy
    _: KW_ONLY
    egress_id: str
    signer: DeviceSigner
    pin: WorkerPin
    reports: ViolationReports
    service: EgressProxyPolicyService
    resolver: Resolver
    clock: Clock

    def __post_init__(self) -> None:
        self.registry = LeaseRegistry()
        self._listeners: dict[str, CallListener] = {}
        self._orders = asyncio.Event()
        self.proxy = EgressProxy(
            self.service,
            self.resolver,
            self,
            limits=ProxyLimits(idle_seconds=self.policy.idle_ms / MS_PER_SECOND),
            upstream=Upstream.parse(self.policy.upstream) if self.policy.upstream else None,
        )

    def apply(self, orders: Orders) -> None:
        now = self._mono_ms()
        for grant in orders.granted:
            try:
                self.registry.add(grant, now)
            except PalyraError as error:
                log.error("a grant was not taken: %s", error.message)
        over = [self.registry.end(ref, now) for ref in orders.ended]
        if orders.whole:
            over += self.registry.reconcile(orders.still_open, now)
        for access in over:
            self._cut(access)
        news, self._orders = self._orders, asyncio.Event()
        news.set()

    async def sweep(self) -> None:
        """End leases past their deadline, connected to the daemon or not."""
        while True:
            await asyncio.sleep(limits.SWEEP_SECONDS)
            for access in self.registry.end_overdue(self._mono_ms()):
                self._cut(access)
            self.reports.filter.keep_only(self.registry.ids())

    def _cut(self, access: LeaseAccess | None) -> None:
        """Let nothing through the listener. It stays open, so that a program which still uses it is seen."""
        listener = None if access is None else self._listeners.get(access.grant.lease_id)
        if listener is not None:
            listener.regrant(None)

    async def bind(self, worker_id: str, nonce: str) -> BindingReply:
        if not self.pin(worker_id):
            raise OtherWorker("this proxy is bound to another worker")
        now = self.clock.now_ms()
        digest = self.policy.digest()
        binding = EgressBinding(
            egress_id=self.egress_id,
            worker_id=worker_id,
            policy_digest_sha256=digest,
            nonce=nonce,
            issued_ms=now,
            expires_ms=now + limits.BINDING_LIFE_MS,
        )
        signed = sign_statement(binding, self.signer)
        return BindingReply(
            egress_id=self.egress_id,
            policy_digest_sha256=digest,
            payload=signed.payload.hex(),
            signature=signed.signature.hex(),
        )

    async def granted(self, ref: LeaseRef) -> GrantReply:
        access = await self._current(ref)
        self.policy.require_within(access.grant.hosts)
        return GrantReply(hosts=access.grant.hosts, max_bytes=self._left(access))

    async def open(self, ref: LeaseRef, sockets: list[tuple[Kind, socket.socket]]) -> None:
        listeners = [ListeningSocket(kind=kind, socket=each) for kind, each in sockets]
        try:
            access = await self._current(ref)
            grant = self._grant_of(access)
            names = SyntheticNames(grant.exact_names())
            self.registry.open(access)
        except BaseException:
            for each in listeners:
                each.socket.close()
            raise
        try:
            self._listeners[ref.lease_id] = self.proxy.open_listener(grant, listeners, names)
        except BaseException:
            self.registry.close(access, 0)
            raise

    async def close(self, ref: LeaseRef) -> UsageReply:
        access = self.registry.require(self.pin.worker_id, ref)
        listener = self._listeners.pop(ref.lease_id, None)
        usage = None if listener is None else listener.close()
        moved = 0 if usage is None else usage.bytes_up + usage.bytes_down
        # Raises if no listener was open.
        self.registry.close(access, moved)
        assert usage is not None and listener is not None
        await listener.wait_until_empty()
        return msgspec.convert(msgspec.to_builtins(usage), UsageReply)

    async def close_all(self) -> None:
        for lease_id in list(self._listeners):
            access = self.registry.find(lease_id)
            if access is not None:
                await self.close(LeaseRef(lease_id, access.grant.fence))

    async def _current(self, ref: LeaseRef) -> LeaseAccess:
        """Return the lease, after waiting for the daemon's grant. Raise if none comes or if the lease is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.GRANT_WAIT_SECONDS):
                while self.registry.find(ref.lease_id) is None:
                    await self._orders.wait()
        access = self.registry.require(self.pin.worker_id, ref)
        if access.is_over:
            held = find_late_request(access, self._mono_ms())
            if held is not None:
                self.reports.hold(access.grant, held)
            raise LeaseOver("the lease is over")
        return access

    def _grant_of(self, access: LeaseAccess) -> EgressGrant:
        grant, policy = access.grant, self.policy
        return EgressGrant(
            grant_id=grant.lease_id,
            principal=grant.principal,
            run=grant.run_id,
            call=grant.call_id,
            tool=grant.tool,
            rules=policy.require_within(grant.hosts),
            private_targets=parse_rules(policy.private_targets),
            max_bytes=self._left(access),
            max_tunnels=min(grant.max_tunnels or policy.max_tunnels, policy.max_tunnels),
        )

    def _left(self, access: LeaseAccess) -> int:
        return max(0, min(access.grant.max_bytes, self.policy.max_lease_bytes) - access.spent)

    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        if not isinstance(event, Refused):
            return
        access = self.registry.find(grant.grant_id)
        held = None if access is None else find_violation(access, event, self._mono_ms())
        log.info("lease %s: %s %s:%d", grant.grant_id, event.refusal.code, event.refusal.host, event.refusal.port)
        if access is not None and held is not None:
            self.reports.hold(access.grant, held)

    def _mono_ms(self) -> int:
        return int(self.clock.monotonic() * MS_PER_SECOND)
