"""The end of what calls print on workers while they run: for people who watch. Nothing is decided by it."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import Denied, LimitExceeded, Unavailable
from palyra.fleet.domain import commands
from palyra.fleet.domain.commands import FleetDecision
from palyra.fleet.domain.lease import LOST_STATES, GrantId, LeaseId, LeaseState, WorkerApprovalGrant, WorkerLease
from palyra.fleet.domain.lease_request import LeaseAsk, LeaseLost, LeaseNotTaken, LeaseReport
from palyra.fleet.domain.leasing import CapabilityLacking
from palyra.fleet.domain.manager import ACTOR
from palyra.fleet.domain.placement import NoWorker, WaitingLine
from palyra.fleet.domain.settlement import SettledResult
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
from palyra.fleet.server.fleet_service import FleetDesk, Session, new_nonce
from palyra.fleet.server.messages import DeviceKeyOf, FleetMetrics

# Standard output and standard error.
STREAMS = frozenset((1, 2))


class _Tail:
    def __init__(self) -> None:
        self.end = 0
        self.kept = b""


class OutputTails:
    def __init__(self) -> None:
        self._tails: dict[str, dict[int, _Tail]] = {}

    def __len__(self) -> int:
        return len(self._tails)

    def add(self, lease_id: str, stream: int, offset: int, data: bytes) -> None:
        """What was seen already is dropped; a gap is left as it is."""
        if stream not in STREAMS or len(data) > MAX_OUTPUT_CHUNK_BYTES:
            return
        tail = self._tails.setdefault(lease_id, {}).setdefault(stream, _Tail())
        new = data[max(0, tail.end - offset) :]
        if new:
            tail.end = offset + len(data)
            tail.kept = (tail.kept + new)[-MAX_OUTPUT_KEPT_BYTES:]

    def tail(self, lease_id: str, stream: int) -> bytes:
        tail = self._tails.get(lease_id, {}).get(stream)
        return b"" if tail is None else tail.kept

    def forget(self, lease_id: str) -> None:
        self._tails.pop(lease_id, None)


# How quickly things end, by the second: the one that runs, and the one before it.


class Pace:
    """``now`` is in seconds and never goes back."""

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


# Calls that workers run for the pipeline: a grant, a place, a lease, its offer, its end; again where that is safe.

# The worker's fault and nobody else's: another one is tried.
_TRY_ANOTHER = (WorkerNotReady, WorkerFull, UnknownWorker, CapabilityLacking)


class EgressDesk(Protocol):
    """What the proxies of workers are told about leases."""

    def grant(self, egress_id: str, grant: LeaseGrant) -> bool: ...

    def end(self, lease_id: str) -> None: ...


class _Flight:
    """A lease that somebody here waits for."""

    def __init__(self, ask: LeaseAsk) -> None:
        self.ask = ask
        self.lease: WorkerLease | None = None
        self.key: DeviceKeyOf | None = None
        self.worker_name = ""
        self.abandoned = False
        self.end: asyncio.Future[tuple[WorkerLease, SettledResult | None]] = asyncio.get_running_loop().create_future()


class _Place:
    def __init__(self, needs: frozenset[str]) -> None:
        self.needs = needs
        self.worker: asyncio.Future[str] = asyncio.get_running_loop().create_future()


class LeaseCalls:
    def __init__(
        self,
        desk: FleetDesk,
        *,
        clock: Clock,
        egress: EgressDesk,
        metrics: FleetMetrics,
        forget_output: Callable[[str], None],
    ) -> None:
        self._desk = desk
        self._forget_output = forget_output
        self._clock = clock
        self._egress = egress
        self._metrics = metrics
        self._flights: dict[str, _Flight] = {}
        self._results: dict[str, SettledResult] = {}
        self._line: WaitingLine[_Place] = WaitingLine()
        self._ends = Pace()
        desk.watch = self

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def in_flight(self) -> int:
        """Leases that calls here wait for."""
        return len(self._flights)

    @property
    def busy(self) -> bool:
        """Leases end here so quickly that messages which nobody waits for are worth saving."""
        return self._ends.per_second(self._clock.monotonic()) >= BUSY_LEASES_A_SECOND

    def lease_of(self, lease_id: str) -> WorkerLease:
        """As it was granted, for what is bound to it; raises UnknownLease."""
        flight = self._flights.get(lease_id)
        if flight is not None and flight.lease is not None and not flight.end.done():
            return flight.lease
        return self._desk.ledger.lease(lease_id)

    async def run(self, ask: LeaseAsk) -> LeaseReport:
        """What a worker did. Raises where none could be had, or where the one that was had is lost."""
        deadline = self._clock.monotonic() + ask.timeout_ms / MS_PER_SECOND
        now_ms = self._clock.now_ms()
        grant_id = str(GrantId.new())
        grant: WorkerApprovalGrant | None = WorkerApprovalGrant(
            grant_id=grant_id,
            run_id=ask.run_id,
            call_id=ask.call_id,
            principal=ask.principal,
            tool=ask.tool,
            argument_digest=ask.argument_digest,
            issued_ms=now_ms,
            expires_ms=now_ms + GRANT_VALID_MS,
            approval_id=ask.approval_id,
        )
        while True:
            flight = await self._leased(ask, grant_id, grant, deadline)
            lease, settled = await self._ended(flight)
            if settled is not None and flight.key is not None:
                return LeaseReport(
                    lease=lease,
                    settled=settled,
                    key_id=flight.key.key_id,
                    key_der=flight.key.public_der(),
                    worker_name=flight.worker_name,
                )
            grant_id, grant = await self._again(lease), None

    async def _leased(
        self, ask: LeaseAsk, grant_id: str, grant: WorkerApprovalGrant | None, deadline: float
    ) -> _Flight:
        refusal: Exception = NoWorker("no worker took the call")
        for _ in range(MAX_PLACEMENTS):
            worker_id = await self._placed(ask, deadline)
            lease_id = str(LeaseId.new())
            flight = self._flights[lease_id] = _Flight(ask)
            left_ms = max(1, round((deadline - self._clock.monotonic()) * MS_PER_SECOND))
            deciding = self._desk.batcher.submit(
                commands.LeaseWork(
                    actor=ACTOR,
                    worker_id=worker_id,
                    lease_id=lease_id,
                    grant_id=grant_id,
                    run_id=ask.run_id,
                    call_id=ask.call_id,
                    principal=ask.principal,
                    tool=ask.tool,
                    argument_digest=ask.argument_digest,
                    needs=ask.needs,
                    scope=ask.scope,
                    inputs=ask.inputs,
                    nonce=new_nonce(),
                    idempotent=ask.idempotent,
                    timeout_ms=left_ms,
                    max_output_bytes=ask.max_output_bytes,
                    grant=grant,
                )
            )
            deciding.add_done_callback(partial(self._answered, worker_id, lease_id))
            try:
                decision = await asyncio.shield(deciding)
            except asyncio.CancelledError:
                # Should it be granted all the same, its worker is told to stop at once.
                flight.abandoned = True
                raise
            if decision.refusal is None:
                return flight
            refusal = decision.refusal
            if not isinstance(refusal, _TRY_ANOTHER):
                raise refusal
            if decision.worker is None or not decision.worker.connected:
                self._desk.index.forget(worker_id)
        raise refusal

    def _answered(self, worker_id: str, lease_id: str, decided: "asyncio.Future[FleetDecision]") -> None:
        self._desk.index.answered(worker_id)
        if decided.cancelled() or decided.exception() is not None or decided.result().refusal is not None:
            # Nobody waits for it any more, whether or not its caller still does.
            self._flights.pop(lease_id, None)

    async def _placed(self, ask: LeaseAsk, deadline: float) -> str:
        index = self._desk.index
        if not self._line:
            try:
                return index.choose(ask.needs, self._clock.now_ms())
            except NoWorker:
                if not index.can_ever(ask.needs):
                    raise
        place = _Place(ask.needs)
        self._line.add(ask.run_id, place)
        self.room()
        taken = False
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                worker_id = await asyncio.shield(place.worker)
            taken = True
            return worker_id
        except TimeoutError:
            raise NoWorker("no worker had a free place until the call's deadline") from None
        finally:
            self._line.discard(ask.run_id, place)
            if not place.worker.done():
                place.worker.cancel()
            elif not taken:
                # Given to whom it could not reach any more: the next one gets it.
                index.answered(place.worker.result())
                self.room()

    def room(self) -> None:
        """Whoever waits longest and fits gets the free place."""
        index, now_ms = self._desk.index, self._clock.now_ms()
        chosen = ""
        # Whole lines wait for the same: what nobody can be given is looked for once.
        in_vain: set[frozenset[str]] = set()

        def fits(place: _Place) -> bool:
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
                index.answered(chosen)
            else:
                place.worker.set_result(chosen)

    async def _ended(self, flight: _Flight) -> tuple[WorkerLease, SettledResult | None]:
        lease = flight.lease
        if lease is None:
            raise LeaseLost("the lease was granted and not begun")
        try:
            return await asyncio.shield(flight.end)
        except asyncio.CancelledError:
            await self._stop(lease, flight)
            raise
        finally:
            self._flights.pop(lease.lease_id, None)

    async def _stop(self, lease: WorkerLease, flight: _Flight) -> None:
        self._desk.batcher.submit(
            commands.CancelLease(actor=ACTOR, lease_id=lease.lease_id, reason="the call was stopped")
        )
        await asyncio.wait([flight.end], timeout=CANCEL_SECONDS)

    async def _again(self, lease: WorkerLease) -> str:
        """A grant for another try, where that can do no harm; raises how the call ended where not."""
        grant_id = str(GrantId.new())
        decision = await self._desk.batcher.decide(
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

    def bring(self, lease_id: str, settled: SettledResult) -> None:
        """What a worker reports, before the ledger has said whether it counts."""
        if lease_id in self._flights:
            self._results[lease_id] = settled

    def drop(self, lease_id: str) -> None:
        self._results.pop(lease_id, None)

    def began(self, lease: WorkerLease, egress_id: str) -> None:
        """The lease is on disk: first its worker's proxy is told of it, then the worker."""
        flight = self._flights.get(lease.lease_id)
        session = self._desk.session(lease.worker_id)
        if flight is None:
            return
        flight.lease = lease
        if session is not None:
            flight.key, flight.worker_name = session.key, session.worker_name
            self._offer(session, lease, flight, egress_id)
        if flight.abandoned:
            self._flights.pop(lease.lease_id, None)
            self._desk.batcher.submit(
                commands.CancelLease(actor=ACTOR, lease_id=lease.lease_id, reason="the call was stopped")
            )

    def _offer(self, session: Session, lease: WorkerLease, flight: _Flight, egress_id: str) -> None:
        ask, now_ms = flight.ask, self._clock.now_ms()
        if egress_id:
            self._egress.grant(
                egress_id,
                LeaseGrant(
                    worker_id=lease.worker_id,
                    lease_id=lease.lease_id,
                    fence=lease.fence,
                    run_id=lease.run_id,
                    call_id=lease.call_id,
                    principal=lease.principal,
                    tool=lease.tool,
                    hosts=ask.hosts,
                    max_bytes=ask.egress_bytes,
                    max_tunnels=ask.egress_tunnels,
                    timeout_ms=max(1, lease.deadline_ms - now_ms),
                ),
            )
        session.line.send(messages.offer(lease, ask, now_ms))

    def ended(self, lease: WorkerLease) -> None:
        self._ends.count(self._clock.monotonic())
        self._egress.end(lease.lease_id)
        self._forget_output(lease.lease_id)
        seconds = max(0, lease.ended_ms - lease.granted_ms) / MS_PER_SECOND
        self._metrics.lease_ended(lease.state.value, seconds)
        brought = self._results.pop(lease.lease_id, None)
        # What was brought counts only if the ledger says so: it may have fenced the lease because of it.
        settled = brought if lease.state is LeaseState.SETTLED else None
        flight = self._flights.get(lease.lease_id)
        if flight is not None and not flight.end.done():
            flight.lease = flight.lease or lease
            flight.end.set_result((lease, settled))

    def connected(self, session: Session, leases: Iterable[WorkerLease]) -> None:
        """A worker is back. What it does not know of never reached it: that is offered again, or taken back. Only where
        it showed before that it has the lease, nobody knows what it did: that ends by its deadline."""
        for lease in leases:
            flight = self._flights.get(lease.lease_id)
            if flight is not None:
                flight.key, flight.worker_name = session.key, session.worker_name
            if lease.lease_id in session.named:
                if lease.state is LeaseState.CANCELLING:
                    session.line.send(messages.cancel(lease))
            elif lease.taken_ms:
                continue
            elif flight is not None and lease.state is LeaseState.OPEN:
                self._offer(session, lease, flight, self._desk.ledger.worker(lease.worker_id).egress_id)
            else:
                self._desk.batcher.submit(
                    commands.DeclineLease(
                        actor=ACTOR,
                        worker_id=lease.worker_id,
                        lease_id=lease.lease_id,
                        session=session.number,
                        fence=lease.fence,
                        reason="the worker never got it",
                    )
                )

    def look_elsewhere(self) -> None:
        """Leases whose worker went over to another daemon end there: the ledger tells."""
        for lease_id, flight in list(self._flights.items()):
            if flight.lease is None or self._desk.session(flight.lease.worker_id) is not None:
                continue
            lease = self._desk.ledger.lease(lease_id)
            if lease.state in LOST_STATES or not lease.is_open:
                self.ended(lease)
