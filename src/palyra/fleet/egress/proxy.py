"""The egress proxy of a worker: the same proxy as the daemon's, with doors for leases that the daemon told it of.

It decides by what came over its own connection to the daemon and by its own policy, whichever is narrower. From the
worker it takes sockets and the names of leases.
"""

import asyncio
import contextlib
import logging
import socket
from typing import Protocol

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
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
from palyra.fleet.domain.attestation import EgressBinding, sign_binding
from palyra.fleet.domain.signed_statement import DeviceSigner
from palyra.fleet.egress.handover_protocol import Bound, Granted, Kind, Usage
from palyra.fleet.egress.leases import LeaseAccess, LeaseBook, LeaseOver, LeaseRef, Orders, OtherWorker
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.egress.violations import ViolationReports, held_against, opened_late

log = logging.getLogger("palyra.egress")


class Pin(Protocol):
    """The one worker of this proxy. Empty: none has been bound yet."""

    @property
    def worker_id(self) -> str: ...

    def __call__(self, worker_id: str) -> bool:
        """Whether it is that one; the first to ask is, from then on."""


class WorkerEgress:
    """One worker's way out."""

    def __init__(
        self,
        policy: WorkerEgressPolicy,
        *,
        egress_id: str,
        signer: DeviceSigner,
        pin: Pin,
        reports: ViolationReports,
        service: EgressProxyPolicyService,
        resolver: Resolver,
        clock: Clock,
    ) -> None:
        self.policy = policy
        self.egress_id = egress_id
        self.book = LeaseBook()
        self.reports = reports
        self._signer = signer
        self._pin = pin
        self._clock = clock
        self._doors: dict[str, CallListener] = {}
        self._orders = asyncio.Event()
        self.proxy = EgressProxy(
            service,
            resolver,
            self,
            limits=ProxyLimits(idle_seconds=policy.idle_ms / MS_PER_SECOND),
            upstream=Upstream.parse(policy.upstream) if policy.upstream else None,
        )

    # What the daemon says.

    def heard(self, orders: Orders) -> None:
        now = self._mono_ms()
        for grant in orders.granted:
            try:
                self.book.granted(grant, now)
            except PalyraError as error:
                log.error("a grant was not taken: %s", error.message)
        over = [self.book.ended(ref, now) for ref in orders.ended]
        if orders.whole:
            over += self.book.reconciled(orders.still_open, now)
        for access in over:
            self._cut(access)
        news, self._orders = self._orders, asyncio.Event()
        news.set()

    async def sweep(self) -> None:
        """Ends leases whose deadline passed, connected to the daemon or not."""
        while True:
            await asyncio.sleep(limits.SWEEP_SECONDS)
            for access in self.book.due(self._mono_ms()):
                self._cut(access)
            self.reports.forget_all_but(self.book.ids())

    def _cut(self, access: LeaseAccess | None) -> None:
        """Nothing goes through its door from now on. It stays open, so that whoever still comes is seen."""
        door = None if access is None else self._doors.get(access.grant.lease_id)
        if door is not None:
            door.regrant(None)

    # What the worker asks.

    async def bind(self, worker_id: str, nonce: str) -> Bound:
        if not self._pin(worker_id):
            raise OtherWorker("this proxy is bound to another worker")
        now = self._clock.now_ms()
        digest = self.policy.digest()
        binding = EgressBinding(
            egress_id=self.egress_id,
            worker_id=worker_id,
            policy_digest_sha256=digest,
            nonce=nonce,
            issued_ms=now,
            expires_ms=now + limits.BINDING_LIFE_MS,
        )
        signed = sign_binding(binding, self._signer)
        return Bound(
            egress_id=self.egress_id,
            policy_digest_sha256=digest,
            payload=signed.payload.hex(),
            signature=signed.signature.hex(),
        )

    async def granted(self, ref: LeaseRef) -> Granted:
        access = await self._current(ref)
        self.policy.require_within(access.grant.hosts)
        return Granted(hosts=access.grant.hosts, max_bytes=self._left(access))

    async def open(self, ref: LeaseRef, sockets: list[tuple[Kind, socket.socket]]) -> None:
        listeners = [ListeningSocket(kind=kind, socket=each) for kind, each in sockets]
        try:
            access = await self._current(ref)
            grant = self._grant_of(access)
            names = SyntheticNames(grant.exact_names())
            self.book.opened(access)
        except BaseException:
            for each in listeners:
                each.socket.close()
            raise
        try:
            self._doors[ref.lease_id] = self.proxy.open_listener(grant, listeners, names)
        except BaseException:
            self.book.closed(access, 0)
            raise

    async def close(self, ref: LeaseRef) -> Usage:
        access = self.book.require(self._pin.worker_id, ref)
        door = self._doors.pop(ref.lease_id, None)
        usage = None if door is None else door.close()
        moved = 0 if usage is None else usage.bytes_up + usage.bytes_down
        # Refused where no door stood.
        self.book.closed(access, moved)
        assert usage is not None and door is not None
        await door.wait_until_empty()
        return Usage(
            connections=usage.connections,
            bytes_up=usage.bytes_up,
            bytes_down=usage.bytes_down,
            refused=usage.refused,
            violations=usage.violations,
            refusals=tuple(msgspec.to_builtins(refusal) for refusal in usage.refusals),
        )

    async def close_all(self) -> None:
        for lease_id in list(self._doors):
            access = self.book.of(lease_id)
            if access is not None:
                await self.close(LeaseRef(lease_id, access.grant.fence))

    async def _current(self, ref: LeaseRef) -> LeaseAccess:
        """The lease, once the daemon told of it; raises where it does not, or says that it is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.GRANT_WAIT_SECONDS):
                while self.book.of(ref.lease_id) is None:
                    await self._orders.wait()
        access = self.book.require(self._pin.worker_id, ref)
        if access.is_over:
            held = opened_late(access, self._mono_ms())
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

    # What the proxy sees.

    def happened(self, grant: EgressGrant, event: EgressEvent) -> None:
        if not isinstance(event, Refused):
            return
        access = self.book.of(grant.grant_id)
        held = None if access is None else held_against(access, event, self._mono_ms())
        log.info("lease %s: %s %s:%d", grant.grant_id, event.refusal.code, event.refusal.host, event.refusal.port)
        if access is not None and held is not None:
            self.reports.hold(access.grant, held)

    def _mono_ms(self) -> int:
        return int(self._clock.monotonic() * MS_PER_SECOND)
