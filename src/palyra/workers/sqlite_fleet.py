"""The fleet's ledger in SQL. Each change names the state that it replaces, so a rival is noticed, not overwritten."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from palyra.workers.commands import FleetCommand
from palyra.workers.decision import ChangedMeanwhile, FleetDecision, LeaseChange, Situation
from palyra.workers.fleet import WorkerFleetManager
from palyra.workers.grant import WorkerApprovalGrant
from palyra.workers.lease import UnknownLease, WorkerLease
from palyra.workers.lifecycle import WorkerLifecycleState
from palyra.workers.limits import KEPT_AFTER_END_MS, KEPT_AFTER_REMOVAL_MS, MAX_PER_ROUND
from palyra.workers.reaper import NEVER_MS, Candidates, look_again_ms
from palyra.workers.record import UnknownWorker, WorkerRecord
from palyra.workers.state_port import Beat, BeatAnswer, Store, Transaction

# Lists of leases, by whether only open ones are wanted and whether one worker's. Open ones are few and have an index;
# those that ended are many, and none of them is looked at for it.
_LEASES: Final = {
    (True, True): (
        "SELECT record FROM fleet_leases INDEXED BY fleet_leases_open WHERE worker_id = ?1 AND ended_ms = 0"
        " AND (?2 = '' OR lease_id < ?2) ORDER BY lease_id DESC LIMIT ?3"
    ),
    (True, False): (
        "SELECT record FROM fleet_leases INDEXED BY fleet_leases_open WHERE ended_ms = 0"
        " AND (?2 = '' OR lease_id < ?2) ORDER BY lease_id DESC LIMIT ?3"
    ),
    (False, True): (
        "SELECT record FROM fleet_leases WHERE worker_id = ?1 AND (?2 = '' OR lease_id < ?2)"
        " ORDER BY lease_id DESC LIMIT ?3"
    ),
    (False, False): (
        "SELECT record FROM fleet_leases WHERE (?2 = '' OR lease_id < ?2) ORDER BY lease_id DESC LIMIT ?3"
    ),
}
_encode = msgspec.msgpack.Encoder().encode
_worker = msgspec.msgpack.Decoder(WorkerRecord).decode
_lease = msgspec.msgpack.Decoder(WorkerLease).decode
_grant = msgspec.msgpack.Decoder(WorkerApprovalGrant).decode


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
        return await self._store.transact(lambda tx: [self._decide(tx, one) for one in commands], essential=essential)

    async def beat(self, beats: Sequence[Beat]) -> BeatAnswer:
        def work(tx: Transaction) -> BeatAnswer:
            stale, suspect = [], []
            for beat in beats:
                rows = tx.execute(
                    "UPDATE fleet_workers SET heard_ms = MAX(heard_ms, ?) WHERE worker_id = ? AND live_session = ?"
                    " RETURNING held",
                    (tx.now_ms, beat.worker_id, beat.session),
                )
                if not rows or beat.session < 1:
                    stale.append(beat)
                elif beat.workspaces > rows[0][0]:
                    suspect.append(beat)
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
        workers = {worker.worker_id: worker for worker in map(_worker_of, (*silent, *looked))}
        return Candidates(workers=tuple(workers.values()), leases=tuple(_lease(row[0]) for row in leases))

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
        return _worker_of(rows[0])

    def workers(self, state: WorkerLifecycleState | None = None, *, after: str = "") -> list[WorkerRecord]:
        rows = self._store.read(
            "SELECT record, heard_ms FROM fleet_workers WHERE (?1 IS NULL OR state = ?1) AND worker_id > ?2"
            " ORDER BY worker_id LIMIT ?3",
            (None if state is None else state.value, after, MAX_PER_ROUND),
        )
        return [_worker_of(row) for row in rows]

    def lease(self, lease_id: str) -> WorkerLease:
        rows = self._store.read("SELECT record FROM fleet_leases WHERE lease_id = ?", (lease_id,))
        if not rows:
            raise UnknownLease(f"there is no lease {lease_id[:64]!r}")
        return _lease(rows[0][0])

    def leases(self, worker_id: str = "", *, only_open: bool = True, before: str = "") -> list[WorkerLease]:
        rows = self._store.read(_LEASES[only_open, bool(worker_id)], (worker_id, before, MAX_PER_ROUND))
        return [_lease(row[0]) for row in rows]

    def holders(self) -> list[WorkerRecord]:
        rows = self._store.read("SELECT record, heard_ms FROM fleet_workers WHERE held > 0")
        return [_worker_of(row) for row in rows]

    def open_leases(self) -> int:
        ((count,),) = self._store.read(
            "SELECT COUNT(*) FROM fleet_leases INDEXED BY fleet_leases_open WHERE ended_ms = 0"
        )
        return int(count)

    def counts(self) -> Mapping[WorkerLifecycleState, int]:
        rows = self._store.read("SELECT state, COUNT(*) FROM fleet_workers GROUP BY state")
        return {WorkerLifecycleState(state): count for state, count in rows}

    def _decide(self, tx: Transaction, command: FleetCommand) -> FleetDecision:
        decision = self._manager.decide(command, _load(tx, command), tx.now_ms)
        self._apply(tx, decision)
        return decision

    def _apply(self, tx: Transaction, decision: FleetDecision) -> None:
        if decision.worker_changed and decision.worker is not None:
            self._put_worker(tx, decision.worker)
        for change in decision.leases:
            self._put_lease(tx, change)
        if decision.grant is not None:
            _put_grant(tx, decision.grant, new=decision.grant_is_new)
        for event in decision.events:
            tx.append(event)

    def _put_worker(self, tx: Transaction, worker: WorkerRecord) -> None:
        held = len(worker.open_leases) + len(worker.owes)
        look_ms = min(look_again_ms(worker, self._manager.policy), NEVER_MS)
        state, awaited = worker.state.value, int(worker.awaited)
        values = (state, worker.revision, worker.live_session, worker.heard_ms, awaited, look_ms, held)
        if worker.revision == 1:
            sql = "INSERT OR IGNORE INTO fleet_workers VALUES (?8, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?9)"
        else:
            sql = (
                "UPDATE fleet_workers SET state = ?1, revision = ?2, live_session = ?3, heard_ms = MAX(heard_ms, ?4),"
                " awaited = ?5, look_ms = ?6, held = ?7, record = ?9 WHERE worker_id = ?8 AND revision = ?2 - 1"
            )
        tx.execute(sql, (*values, worker.worker_id, _encode(worker)))
        _require_one(tx, "worker", worker.worker_id)

    def _put_lease(self, tx: Transaction, change: LeaseChange) -> None:
        lease = change.lease
        due_ms = lease.due_ms(self._manager.policy)
        if change.was is None:
            tx.execute(
                "INSERT OR IGNORE INTO fleet_leases VALUES (?, ?, ?, ?, ?, ?, ?)",
                (lease.lease_id, lease.worker_id, lease.state.value, lease.fence, due_ms, 0, _encode(lease)),
            )
        else:
            tx.execute(
                "UPDATE fleet_leases SET state = ?, due_ms = ?, ended_ms = ?, record = ?"
                " WHERE lease_id = ? AND state = ?",
                (lease.state.value, due_ms, lease.ended_ms, _encode(lease), lease.lease_id, change.was.value),
            )
        _require_one(tx, "lease", lease.lease_id)


def _load(tx: Transaction, command: FleetCommand) -> Situation:
    lease = grant = worker = None
    if command.lease_id and not command.with_fence:
        rows = tx.execute("SELECT record FROM fleet_leases WHERE lease_id = ?", (command.lease_id,))
        lease = _lease(rows[0][0]) if rows else None
    worker_id = command.worker_id or (lease.worker_id if lease else "")
    if worker_id:
        rows = tx.execute("SELECT record, heard_ms FROM fleet_workers WHERE worker_id = ?", (worker_id,))
        worker = _worker_of(rows[0]) if rows else None
    if command.grant_id:
        rows = tx.execute("SELECT record FROM fleet_grants WHERE grant_id = ?", (command.grant_id,))
        grant = _grant(rows[0][0]) if rows else None
    open_leases: tuple[WorkerLease, ...] = ()
    if command.with_open_leases and worker is not None:
        open_leases = _open_leases(tx, worker, lease)
    workers = fence = 0
    if command.with_count:
        ((workers,),) = tx.execute("SELECT COUNT(*) FROM fleet_workers WHERE state <> 'removed'")
    if command.with_fence:
        ((fence,),) = tx.execute("UPDATE fleet_fence SET last = last + 1 RETURNING last")
    return Situation(worker=worker, lease=lease, grant=grant, open_leases=open_leases, workers=workers, fence=fence)


def _open_leases(tx: Transaction, worker: WorkerRecord, lease: WorkerLease | None) -> tuple[WorkerLease, ...]:
    if lease is not None and worker.open_leases == (lease.lease_id,):
        return (lease,)
    if not worker.open_leases:
        return ()
    rows = tx.execute(
        "SELECT record FROM fleet_leases WHERE worker_id = ? AND ended_ms = 0 ORDER BY lease_id", (worker.worker_id,)
    )
    return tuple(_lease(row[0]) for row in rows)


def _put_grant(tx: Transaction, grant: WorkerApprovalGrant, *, new: bool) -> None:
    if new:
        tx.execute(
            "INSERT OR IGNORE INTO fleet_grants VALUES (?, ?, ?, ?)",
            (grant.grant_id, grant.used_by, grant.expires_ms, _encode(grant)),
        )
    else:
        tx.execute(
            "UPDATE fleet_grants SET used_by = ?, record = ? WHERE grant_id = ? AND used_by = ''",
            (grant.used_by, _encode(grant), grant.grant_id),
        )
    _require_one(tx, "grant", grant.grant_id)


def _require_one(tx: Transaction, what: str, name: str) -> None:
    if tx.changed() != 1:
        raise ChangedMeanwhile(f"the {what} {name} is not what it was", id=name)


def _worker_of(row: tuple[Any, ...]) -> WorkerRecord:
    """The record, with when it was last heard."""
    record = _worker(row[0])
    return msgspec.structs.replace(record, heard_ms=row[1])
