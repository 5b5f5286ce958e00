"""A ledger of the fleet in memory, that passes the same conformance suite as the one in SQL."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from palyra.clock import Clock
from palyra.fleet.domain.commands import ChangedMeanwhile, FleetCommand, FleetDecision, Situation
from palyra.fleet.domain.lease import UnknownLease, WorkerApprovalGrant, WorkerLease
from palyra.fleet.domain.manager import Candidates, WorkerFleetManager, look_again_ms
from palyra.fleet.domain.worker import UnknownWorker, WorkerLifecycleState, WorkerRecord
from palyra.fleet.limits import KEPT_AFTER_END_MS, KEPT_AFTER_REMOVAL_MS, MAX_PER_ROUND
from palyra.fleet.store.port import Beat, BeatAnswer
from palyra.store.event import NewEvent


class Shelf(msgspec.Struct):
    """What survives a restart."""

    workers: dict[str, WorkerRecord] = {}
    leases: dict[str, WorkerLease] = {}
    grants: dict[str, WorkerApprovalGrant] = {}
    fence: int = 0


class MemoryFleet:
    def __init__(self, clock: Clock, manager: WorkerFleetManager) -> None:
        self._clock = clock
        self._manager = manager
        self.shelf = Shelf()
        self.journal: list[NewEvent] = []

    def restart(self) -> None:
        """Only what can be written down and read again is kept."""
        self.shelf = msgspec.msgpack.decode(msgspec.msgpack.encode(self.shelf), type=Shelf)

    def events(self) -> list[tuple[str, dict[str, object]]]:
        return [(event.kind, event.payload) for event in self.journal]

    async def decide(self, command: FleetCommand) -> FleetDecision:
        decision = self._decide(command, self._clock.now_ms())
        if decision.refusal is not None:
            raise decision.refusal
        return decision

    async def decide_all(self, commands: Sequence[FleetCommand]) -> list[FleetDecision]:
        now_ms = self._clock.now_ms()
        return [self._decide(command, now_ms) for command in commands]

    async def beat(self, beats: Sequence[Beat]) -> BeatAnswer:
        stale, suspect, now_ms = [], [], self._clock.now_ms()
        for beat in beats:
            worker = self.shelf.workers.get(beat.worker_id)
            if worker is None or beat.session < 1 or worker.live_session != beat.session:
                stale.append(beat)
                continue
            heard_ms = max(worker.heard_ms, now_ms)
            self.shelf.workers[beat.worker_id] = msgspec.structs.replace(worker, heard_ms=heard_ms)
            if beat.workspaces > worker.workspaces_expected:
                suspect.append(beat)
        return BeatAnswer(stale=tuple(stale), suspect=tuple(suspect))

    def candidates(self, now_ms: int) -> Candidates:
        policy = self._manager.policy
        workers = [
            worker
            for worker in self.shelf.workers.values()
            if worker.silent_at(policy, now_ms) or look_again_ms(worker, policy) <= now_ms
        ]
        leases = [one for one in self.shelf.leases.values() if one.is_open and one.due_ms(policy) <= now_ms]
        return Candidates(workers=tuple(workers[:MAX_PER_ROUND]), leases=tuple(leases[:MAX_PER_ROUND]))

    async def prune(self) -> int:
        now_ms, shelf = self._clock.now_ms(), self.shelf
        ended = [k for k, one in shelf.leases.items() if 0 < one.ended_ms < now_ms - KEPT_AFTER_END_MS]
        past = [k for k, one in shelf.grants.items() if one.expires_ms < now_ms - KEPT_AFTER_END_MS]
        removed = [
            k
            for k, one in shelf.workers.items()
            if one.state is WorkerLifecycleState.REMOVED and one.heard_ms < now_ms - KEPT_AFTER_REMOVAL_MS
        ]
        for keys, table in ((ended, shelf.leases), (past, shelf.grants), (removed, shelf.workers)):
            for key in keys[:MAX_PER_ROUND]:
                del table[key]  # type: ignore[attr-defined]
        return sum(len(keys[:MAX_PER_ROUND]) for keys in (ended, past, removed))

    def worker(self, worker_id: str) -> WorkerRecord:
        if worker_id not in self.shelf.workers:
            raise UnknownWorker(f"there is no worker {worker_id!r}")
        return self.shelf.workers[worker_id]

    def workers(self, state: WorkerLifecycleState | None = None, *, after: str = "") -> list[WorkerRecord]:
        found = sorted(self.shelf.workers.values(), key=lambda worker: worker.worker_id)
        return [one for one in found if one.worker_id > after and state in (None, one.state)][:MAX_PER_ROUND]

    def lease(self, lease_id: str) -> WorkerLease:
        if lease_id not in self.shelf.leases:
            raise UnknownLease(f"there is no lease {lease_id!r}")
        return self.shelf.leases[lease_id]

    def leases(self, worker_id: str = "", *, only_open: bool = True, before: str = "") -> list[WorkerLease]:
        found = sorted(self.shelf.leases.values(), key=lambda lease: lease.lease_id, reverse=True)
        return [
            one
            for one in found
            if worker_id in ("", one.worker_id)
            and (one.is_open or not only_open)
            and (not before or one.lease_id < before)
        ][:MAX_PER_ROUND]

    def holders(self) -> list[WorkerRecord]:
        return [one for one in self.shelf.workers.values() if one.workspaces_expected]

    def open_leases(self) -> int:
        return sum(one.is_open for one in self.shelf.leases.values())

    def counts(self) -> Mapping[WorkerLifecycleState, int]:
        return Counter(worker.state for worker in self.shelf.workers.values())

    def _decide(self, command: FleetCommand, now_ms: int) -> FleetDecision:
        shelf = self.shelf
        lease = None if command.with_fence else shelf.leases.get(command.lease_id)
        worker = shelf.workers.get(command.worker_id or (lease.worker_id if lease else ""))
        own = self.leases(worker.worker_id)[::-1] if worker else []
        shelf.fence += command.with_fence
        situation = Situation(
            worker=worker,
            lease=lease,
            grant=shelf.grants.get(command.grant_id),
            open_leases=tuple(own) if command.with_open_leases else (),
            workers=sum(one.state is not WorkerLifecycleState.REMOVED for one in shelf.workers.values()),
            fence=shelf.fence,
        )
        decision = self._manager.decide(command, situation, now_ms)
        self._apply(decision)
        return decision

    def _apply(self, decision: FleetDecision) -> None:
        shelf, worker = self.shelf, decision.worker
        if worker is not None and decision.worker_changed:
            known = shelf.workers.get(worker.worker_id)
            _require(worker.revision == (known.revision + 1 if known else 1))
            shelf.workers[worker.worker_id] = worker
        for change in decision.leases:
            before = shelf.leases.get(change.lease.lease_id)
            _require((before.state if before else None) is change.was)
            shelf.leases[change.lease.lease_id] = change.lease
        if decision.grant is not None:
            known_grant = shelf.grants.get(decision.grant.grant_id)
            _require((known_grant is None) is decision.grant_is_new and not (known_grant and known_grant.used_by))
            shelf.grants[decision.grant.grant_id] = decision.grant
        self.journal += decision.events


def _require(expected: bool) -> None:
    if not expected:
        raise ChangedMeanwhile("the ledger is not what it was")
