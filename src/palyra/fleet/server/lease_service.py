"""Calls that workers run for the pipeline: a grant, a worker, a lease, its offer, its end, and a safe retry."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import partial

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import Denied, LimitExceeded, Unavailable
from palyra.fleet.domain import commands
from palyra.fleet.domain.commands import FleetDecision
from palyra.fleet.domain.lease import (
    LOST_STATES,
    GrantId,
    LeaseId,
    LeaseLost,
    LeaseNotTaken,
    LeaseRequest,
    LeaseState,
    WorkerApprovalGrant,
    WorkerLease,
    call_fields,
)
from palyra.fleet.domain.leasing import CapabilityLacking
from palyra.fleet.domain.manager import ACTOR
from palyra.fleet.domain.placement import NoWorker, WaitingLine
from palyra.fleet.domain.settlement import LeaseReport, SettledResult
from palyra.fleet.domain.worker import UnknownWorker, WorkerFull, WorkerNotReady
from palyra.fleet.egress.leases import LeaseGrant
from palyra.fleet.limits import (
    BUSY_LEASES_A_SECOND,
    CANCEL_SECONDS,
    GRANT_VALID_MS,
    MAX_OUTPUT_CHUNK_BYTES,
    MAX_OUTPUT_KEPT_BYTES,
    MAX_PLACEMENTS,
)
from palyra.fleet.server import messages
from palyra.fleet.server.fleet_service import FleetSessions, Session, new_nonce
from palyra.fleet.server.lease_grants import LeaseGrants
from palyra.fleet.server.messages import FleetMetrics
from palyra.signing.p256 import P256Verifier

# Standard output and standard error.
STREAMS = frozenset((1, 2))


class OutputTails:
    """The end of each running call's output, for people who watch."""

    def __init__(self) -> None:
        # By lease and stream: the offset of the end, and the last bytes.
        self._tails: dict[str, dict[int, tuple[int, bytes]]] = {}

    def add(self, lease_id: str, stream: int, offset: int, data: bytes) -> None:
        """Append output. Repeated bytes are dropped; a gap stays."""
        if stream not in STREAMS or len(data) > MAX_OUTPUT_CHUNK_BYTES:
            return
        tails = self._tails.setdefault(lease_id, {})
        end, kept = tails.get(stream, (0, b""))
        if new := data[max(0, end - offset) :]:
            tails[stream] = (offset + len(data), (kept + new)[-MAX_OUTPUT_KEPT_BYTES:])

    def tail(self, lease_id: str, stream: int) -> bytes:
        return self._tails.get(lease_id, {}).get(stream, (0, b""))[1]

    def forget(self, lease_id: str) -> None:
        self._tails.pop(lease_id, None)


class Pace:
    """Counts events in the present and the last second. ``now`` is monotonic, in seconds."""

    __slots__ = ("_before", "_now", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._now = 0
        self._before = 0

    def count(self, now: float) -> None:
        self._turn(now)
        self._now += 1

    def per_second(self, now: float) -> int:
        self._turn(now)
        return max(self._now, self._before)

    def _turn(self, now: float) -> None:
        second = int(now)
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._second, self._now = second, 0


# Refusals because of the worker: another one is tried.
_TRY_ANOTHER = (WorkerNotReady, WorkerFull, UnknownWorker, CapabilityLacking)


class PendingLease:
    """A lease that a caller in this daemon waits for."""

    def __init__(self, request: LeaseRequest) -> None:
        self.request = request
        self.lease: WorkerLease | None = None
        self.key: P256Verifier | None = None
        self.worker_name = ""
        self.abandoned = False
        self.end: asyncio.Future[tuple[WorkerLease, SettledResult | None]] = asyncio.get_running_loop().create_future()


class _WaitingCall:
    def __init__(self, needs: frozenset[str]) -> None:
        self.needs = needs
        self.worker: asyncio.Future[str] = asyncio.get_running_loop().create_future()


@dataclass(eq=False)
class LeaseService:
    sessions: FleetSessions
    _: KW_ONLY
    clock: Clock
    egress: LeaseGrants
    metrics: FleetMetrics
    forget_output: Callable[[str], None]

    def __post_init__(self) -> None:
        self._pending: dict[str, PendingLease] = {}
        self._results: dict[str, SettledResult] = {}
        self._line: WaitingLine[_WaitingCall] = WaitingLine()
        self._ends = Pace()
        self.sessions.watch = self

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def busy(self) -> bool:
        """Whether so many leases end that a message which nothing waits for should travel with another."""
        return self._ends.per_second(self.clock.monotonic()) >= BUSY_LEASES_A_SECOND

    def lease_of(self, lease_id: str) -> WorkerLease:
        """Return the lease as it was granted. Raise UnknownLease."""
        pending = self._pending.get(lease_id)
        if pending is not None and pending.lease is not None and not pending.end.done():
            return pending.lease
        return self.sessions.ledger.lease(lease_id)

    async def run(self, request: LeaseRequest) -> LeaseReport:
        """Run a call on a worker. Raise if no worker takes it, or if its lease is lost."""
        deadline = self.clock.monotonic() + request.timeout_ms / MS_PER_SECOND
        now_ms = self.clock.now_ms()
        grant_id = str(GrantId.new())
        grant: WorkerApprovalGrant | None = WorkerApprovalGrant(
            grant_id=grant_id,
            issued_ms=now_ms,
            expires_ms=now_ms + GRANT_VALID_MS,
            approval_id=request.approval_id,
            **call_fields(request),
        )
        while True:
            pending = await self._acquire_lease(request, grant_id, grant, deadline)
            lease, settled = await self._wait_for_end(pending)
            if settled is not None and pending.key is not None:
                return LeaseReport(
                    lease=lease,
                    settled=settled,
                    key_id=pending.key.key_id,
                    key_der=pending.key.public_der(),
                    worker_name=pending.worker_name,
                )
            grant_id, grant = await self._grant_retry(lease), None

    async def _acquire_lease(
        self, request: LeaseRequest, grant_id: str, grant: WorkerApprovalGrant | None, deadline: float
    ) -> PendingLease:
        refusal: Exception = NoWorker("no worker took the call")
        for _ in range(MAX_PLACEMENTS):
            worker_id = await self._choose_worker(request, deadline)
            lease_id = str(LeaseId.new())
            pending = self._pending[lease_id] = PendingLease(request)
            left_ms = max(1, round((deadline - self.clock.monotonic()) * MS_PER_SECOND))
            deciding = self.sessions.batcher.submit(
                commands.LeaseWork(
                    actor=ACTOR,
                    worker_id=worker_id,
                    lease_id=lease_id,
                    grant_id=grant_id,
                    needs=request.needs,
                    scope=request.scope,
                    inputs=request.inputs,
                    nonce=new_nonce(),
                    idempotent=request.idempotent,
                    timeout_ms=left_ms,
                    max_output_bytes=request.max_output_bytes,
                    grant=grant,
                    **call_fields(request),
                )
            )
            deciding.add_done_callback(partial(self._release_place, worker_id, lease_id))
            try:
                decision = await asyncio.shield(deciding)
            except asyncio.CancelledError:
                # If the lease is granted all the same, it is cancelled at once.
                pending.abandoned = True
                raise
            if decision.refusal is None:
                return pending
            refusal = decision.refusal
            if not isinstance(refusal, _TRY_ANOTHER):
                raise refusal
            if decision.worker is None or not decision.worker.connected:
                self.sessions.index.forget(worker_id)
        raise refusal

    def _release_place(self, worker_id: str, lease_id: str, decided: "asyncio.Future[FleetDecision]") -> None:
        self.sessions.index.release(worker_id)
        if decided.cancelled() or decided.exception() is not None or decided.result().refusal is not None:
            self._pending.pop(lease_id, None)

    async def _choose_worker(self, request: LeaseRequest, deadline: float) -> str:
        index = self.sessions.index
        if not self._line:
            try:
                return index.choose(request.needs, self.clock.now_ms())
            except NoWorker:
                if not index.can_ever(request.needs):
                    raise
        place = _WaitingCall(request.needs)
        self._line.add(request.principal, place)
        self.dispatch_waiting()
        taken = False
        try:
            async with asyncio.timeout(max(0.0, deadline - self.clock.monotonic())):
                worker_id = await asyncio.shield(place.worker)
            taken = True
            return worker_id
        except TimeoutError:
            raise NoWorker("no worker had a free place until the call's deadline") from None
        finally:
            self._line.discard(request.principal, place)
            if not place.worker.done():
                place.worker.cancel()
            elif not taken:
                # The caller gave up meanwhile: the next call gets the place.
                index.release(place.worker.result())
                self.dispatch_waiting()

    def dispatch_waiting(self) -> None:
        """Give free places to the waiting calls, in their order."""
        index, now_ms = self.sessions.index, self.clock.now_ms()
        chosen = ""
        # Many calls have the same needs: a choice that failed is not tried again.
        in_vain: set[frozenset[str]] = set()

        def fits(place: _WaitingCall) -> bool:
            nonlocal chosen
            if place.needs in in_vain:
                return False
            try:
                chosen = index.choose(place.needs, now_ms)
            except NoWorker:
                in_vain.add(place.needs)
                return False
            return True

        while self._line and index.free and (place := self._line.take(fits)) is not None:
            if place.worker.done():
                index.release(chosen)
            else:
                place.worker.set_result(chosen)

    async def _wait_for_end(self, pending: PendingLease) -> tuple[WorkerLease, SettledResult | None]:
        lease = pending.lease
        if lease is None:
            raise LeaseLost("the lease was granted and not begun")
        try:
            return await asyncio.shield(pending.end)
        except asyncio.CancelledError:
            self._cancel(lease)
            await asyncio.wait([pending.end], timeout=CANCEL_SECONDS)
            raise
        finally:
            self._pending.pop(lease.lease_id, None)

    def _cancel(self, lease: WorkerLease) -> None:
        command = commands.CancelLease(actor=ACTOR, lease_id=lease.lease_id, reason="the call was stopped")
        self.sessions.batcher.submit(command)

    async def _grant_retry(self, lease: WorkerLease) -> str:
        """Return a grant for a retry. If a retry could do harm, raise the call's end."""
        grant_id = str(GrantId.new())
        decision = await self.sessions.batcher.decide(
            commands.RetryLease(actor=ACTOR, lease_id=lease.lease_id, grant_id=grant_id, valid_ms=GRANT_VALID_MS)
        )
        refusal = decision.refusal
        if refusal is None:
            return grant_id
        if not isinstance(refusal, Denied | LimitExceeded | Unavailable):
            raise refusal
        facts = {"lease_id": lease.lease_id, "worker_id": lease.worker_id}
        if lease.state is LeaseState.DECLINED:
            raise LeaseNotTaken(f"the worker declined the call: {lease.reason[:200]}", **facts)
        how = "its deadline passed" if lease.state is LeaseState.EXPIRED else f"it was given up ({lease.reason[:100]})"
        raise LeaseLost(f"the worker did not report: {how}; {refusal.message}", **facts)

    def stage_result(self, lease_id: str, settled: SettledResult) -> None:
        """Keep a worker's result until the ledger has decided whether it counts."""
        if lease_id in self._pending:
            self._results[lease_id] = settled

    def discard_result(self, lease_id: str) -> None:
        self._results.pop(lease_id, None)

    def on_granted(self, lease: WorkerLease, egress_id: str) -> None:
        """Send a granted lease to the worker's proxy, then to the worker."""
        pending = self._pending.get(lease.lease_id)
        session = self.sessions.session(lease.worker_id)
        if pending is None:
            return
        pending.lease = lease
        if session is not None:
            pending.key, pending.worker_name = session.key, session.worker_name
            self._offer(session, lease, pending, egress_id)
        if pending.abandoned:
            self._pending.pop(lease.lease_id, None)
            self._cancel(lease)

    def _offer(self, session: Session, lease: WorkerLease, pending: PendingLease, egress_id: str) -> None:
        request, now_ms = pending.request, self.clock.now_ms()
        if egress_id:
            self.egress.grant(
                egress_id,
                LeaseGrant(
                    worker_id=lease.worker_id,
                    lease_id=lease.lease_id,
                    fence=lease.fence,
                    run_id=lease.run_id,
                    call_id=lease.call_id,
                    principal=lease.principal,
                    tool=lease.tool,
                    hosts=request.hosts,
                    max_bytes=request.egress_bytes,
                    max_tunnels=request.egress_tunnels,
                    timeout_ms=max(1, lease.deadline_ms - now_ms),
                ),
            )
        session.stream.send(messages.offer(lease, request, now_ms))

    def on_ended(self, lease: WorkerLease) -> None:
        self._ends.count(self.clock.monotonic())
        self.egress.end(lease.lease_id)
        self.forget_output(lease.lease_id)
        seconds = max(0, lease.ended_ms - lease.granted_ms) / MS_PER_SECOND
        self.metrics.lease_ended(lease.state.value, seconds)
        staged = self._results.pop(lease.lease_id, None)
        # The result counts only if the ledger settled the lease: it may have fenced the lease because of it.
        settled = staged if lease.state is LeaseState.SETTLED else None
        pending = self._pending.get(lease.lease_id)
        if pending is not None and not pending.end.done():
            pending.lease = pending.lease or lease
            pending.end.set_result((lease, settled))

    def on_connected(self, session: Session, leases: Iterable[WorkerLease]) -> None:
        """Offer again, or take back, the leases that never reached a reconnected worker.

        A lease that the worker had before and does not name now may have run: its deadline ends it.
        """
        for lease in leases:
            pending = self._pending.get(lease.lease_id)
            if pending is not None:
                pending.key, pending.worker_name = session.key, session.worker_name
            if lease.lease_id in session.named:
                if lease.state is LeaseState.CANCELLING:
                    session.stream.send(messages.cancel(lease))
            elif lease.taken_ms:
                continue
            elif pending is not None and lease.state is LeaseState.OPEN:
                self._offer(session, lease, pending, self.sessions.ledger.worker(lease.worker_id).egress_id)
            else:
                self.sessions.batcher.submit(
                    commands.DeclineLease(
                        actor=ACTOR,
                        worker_id=lease.worker_id,
                        lease_id=lease.lease_id,
                        session=session.number,
                        fence=lease.fence,
                        reason="the worker never got it",
                    )
                )

    def settle_moved_leases(self) -> None:
        """End the leases whose worker moved to another daemon and whose end is in the ledger."""
        for lease_id, pending in list(self._pending.items()):
            if pending.lease is None or self.sessions.session(pending.lease.worker_id) is not None:
                continue
            lease = self.sessions.ledger.lease(lease_id)
            if lease.state in LOST_STATES or not lease.is_open:
                self.on_ended(lease)
