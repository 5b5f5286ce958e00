"""The fleet's ledger in SQL. What commands change is decided and written in ``sqlite_batch``."""

from collections.abc import Mapping, Sequence
from typing import Final

from palyra.workers.commands import FleetCommand
from palyra.workers.decision import FleetDecision
from palyra.workers.fleet import WorkerFleetManager
from palyra.workers.lease import UnknownLease, WorkerLease
from palyra.workers.lifecycle import WorkerLifecycleState
from palyra.workers.limits import KEPT_AFTER_END_MS, KEPT_AFTER_REMOVAL_MS, MAX_PER_ROUND
from palyra.workers.reaper import Candidates
from palyra.workers.record import UnknownWorker, WorkerRecord
from palyra.workers.sqlite_batch import SIZES, SqliteBatch, chunks, decode_lease, listing, worker_of
from palyra.workers.state_port import Beat, BeatAnswer, Store, Transaction

# Lists of leases, by whether only open ones are wanted and whether one worker's. Open ones are few and have an index;
# those that ended are many, and none of them is looked at for it.
_LEASES: Final = {
    (True, True): (
        "SELECT record FROM fleet_leases INDEXED BY fleet_leases_open WHERE worker_id = :worker AND ended_ms = 0"
        " AND (:before = '' OR lease_id < :before) ORDER BY lease_id DESC LIMIT :most"
    ),
    (True, False): (
        "SELECT record FROM fleet_leases INDEXED BY fleet_leases_open WHERE ended_ms = 0"
        " AND (:before = '' OR lease_id < :before) ORDER BY lease_id DESC LIMIT :most"
    ),
    (False, True): (
        "SELECT record FROM fleet_leases WHERE worker_id = :worker AND (:before = '' OR lease_id < :before)"
        " ORDER BY lease_id DESC LIMIT :most"
    ),
    (False, False): (
        "SELECT record FROM fleet_leases WHERE (:before = '' OR lease_id < :before) ORDER BY lease_id DESC LIMIT :most"
    ),
}
# Of heartbeats, by how many a statement is about.
_SESSIONS: Final = {
    size: listing("SELECT worker_id, live_session, held FROM fleet_workers WHERE worker_id IN", size) for size in SIZES
}
_HEARD: Final = {
    size: listing("UPDATE fleet_workers SET heard_ms = MAX(heard_ms, ?) WHERE worker_id IN", size) for size in SIZES
}


class SqliteFleet:
    def __init__(self, store: Store, manager: WorkerFleetManager) -> None:
        self._store = store
        self._manager = manager

    async def decide(self, command: FleetCommand) -> FleetDecision:
        (decision,) = await self.decide_all((command,))
        if decision.refusal is not None:
            raise decision.refusal
        return decision

    async def decide_all(self, commands: Sequence[FleetCommand]) -> list[FleetDecision]:
        essential = not any(one.begins_work for one in commands)
        return await self._store.transact(
            lambda tx: SqliteBatch(tx, self._manager).decide(commands), essential=essential
        )

    async def beat(self, beats: Sequence[Beat]) -> BeatAnswer:
        def work(tx: Transaction) -> BeatAnswer:
            held: dict[str, tuple[int, int]] = {}
            for some in chunks([beat.worker_id for beat in beats]):
                held |= {row[0]: row[1:] for row in tx.execute(_SESSIONS[len(some)], some)}
            heard: list[str] = []
            stale, suspect = [], []
            for beat in beats:
                live_session, expected = held.get(beat.worker_id, (0, 0))
                if beat.session < 1 or beat.session != live_session:
                    stale.append(beat)
                    continue
                heard.append(beat.worker_id)
                if beat.workspaces > expected:
                    suspect.append(beat)
            for some in chunks(heard):
                tx.execute(_HEARD[len(some)], (tx.now_ms, *some))
            return BeatAnswer(stale=tuple(stale), suspect=tuple(suspect))

        return await self._store.transact(work, essential=True)

    def candidates(self, now_ms: int) -> Candidates:
        timeout_ms = self._manager.policy.heartbeat_timeout_ms
        silent = self._store.read(
            "SELECT record, heard_ms FROM fleet_workers WHERE awaited = 1 AND heard_ms <= ? ORDER BY heard_ms LIMIT ?",
            (now_ms - timeout_ms, MAX_PER_ROUND),
        )
        looked = self._store.read(
            "SELECT record, heard_ms FROM fleet_workers WHERE look_ms <= ? ORDER BY look_ms LIMIT ?",
            (now_ms, MAX_PER_ROUND),
        )
        leases = self._store.read(
            "SELECT record FROM fleet_leases WHERE ended_ms = 0 AND due_ms <= ? ORDER BY due_ms LIMIT ?",
            (now_ms, MAX_PER_ROUND),
        )
        workers = {worker.worker_id: worker for worker in map(worker_of, (*silent, *looked))}
        return Candidates(workers=tuple(workers.values()), leases=tuple(decode_lease(row[0]) for row in leases))

    async def prune(self) -> int:
        def work(tx: Transaction) -> int:
            gone = 0
            for sql, before_ms in (
                (
                    "DELETE FROM fleet_leases WHERE lease_id IN (SELECT lease_id FROM fleet_leases"
                    " WHERE ended_ms > 0 AND ended_ms < ? LIMIT ?)",
                    tx.now_ms - KEPT_AFTER_END_MS,
                ),
                (
                    "DELETE FROM fleet_grants WHERE grant_id IN (SELECT grant_id FROM fleet_grants"
                    " WHERE expires_ms < ? LIMIT ?)",
                    tx.now_ms - KEPT_AFTER_END_MS,
                ),
                (
                    "DELETE FROM fleet_workers WHERE worker_id IN (SELECT worker_id FROM fleet_workers"
                    " WHERE state = 'removed' AND heard_ms < ? LIMIT ?)",
                    tx.now_ms - KEPT_AFTER_REMOVAL_MS,
                ),
            ):
                tx.execute(sql, (before_ms, MAX_PER_ROUND))
                gone += tx.changed()
            return gone

        return await self._store.transact(work)

    def worker(self, worker_id: str) -> WorkerRecord:
        rows = self._store.read("SELECT record, heard_ms FROM fleet_workers WHERE worker_id = ?", (worker_id,))
        if not rows:
            raise UnknownWorker(f"there is no worker {worker_id[:64]!r}")
        return worker_of(rows[0])

    def workers(self, state: WorkerLifecycleState | None = None, *, after: str = "") -> list[WorkerRecord]:
        rows = self._store.read(
            "SELECT record, heard_ms FROM fleet_workers WHERE (:state IS NULL OR state = :state) AND worker_id > :after"
            " ORDER BY worker_id LIMIT :most",
            {"state": None if state is None else state.value, "after": after, "most": MAX_PER_ROUND},
        )
        return [worker_of(row) for row in rows]

    def lease(self, lease_id: str) -> WorkerLease:
        rows = self._store.read("SELECT record FROM fleet_leases WHERE lease_id = ?", (lease_id,))
        if not rows:
            raise UnknownLease(f"there is no lease {lease_id[:64]!r}")
        return decode_lease(rows[0][0])

    def leases(self, worker_id: str = "", *, only_open: bool = True, before: str = "") -> list[WorkerLease]:
        asked = {"worker": worker_id, "before": before, "most": MAX_PER_ROUND}
        rows = self._store.read(_LEASES[only_open, bool(worker_id)], asked)
        return [decode_lease(row[0]) for row in rows]

    def holders(self) -> list[WorkerRecord]:
        rows = self._store.read("SELECT record, heard_ms FROM fleet_workers WHERE held > 0")
        return [worker_of(row) for row in rows]

    def open_leases(self) -> int:
        ((count,),) = self._store.read(
            "SELECT COUNT(*) FROM fleet_leases INDEXED BY fleet_leases_open WHERE ended_ms = 0"
        )
        return int(count)

    def counts(self) -> Mapping[WorkerLifecycleState, int]:
        rows = self._store.read("SELECT state, COUNT(*) FROM fleet_workers GROUP BY state")
        return {WorkerLifecycleState(state): count for state, count in rows}
