"""The fleet's ledger in SQL. The commands of a batch are read together and written together, in one transaction.

Every statement makes the writer's thread wait for its next turn behind the thread that serves all workers. One
statement per command took most of a lease's time. Each change names the state that it replaces, so that a concurrent
change is noticed and not overwritten.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Generic, TypeVar

import msgspec

from palyra.fleet.domain.commands import ChangedMeanwhile, FleetCommand, FleetDecision, Situation
from palyra.fleet.domain.lease import UnknownLease, WorkerApprovalGrant, WorkerLease
from palyra.fleet.domain.manager import NEVER_MS, Candidates, WorkerFleetManager, look_again_ms
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.worker import UnknownWorker, WorkerLifecycleState, WorkerRecord
from palyra.fleet.limits import KEPT_AFTER_END_MS, KEPT_AFTER_REMOVAL_MS, MAX_PER_ROUND
from palyra.fleet.store.port import Beat, BeatAnswer
from palyra.store.port import Store, Transaction

T = TypeVar("T")
R = TypeVar("R")
Row = tuple[Any, ...]
# The numbers of rows in one statement. Each size is prepared once.
SIZES: Final = (16, 4, 1)
# In the order of the values that follow them.
_CHANGE_WORKER: Final = ("worker_id", "was", "state", "revision", "live_session", "held", "record")
_MOVE_WORKER: Final = (*_CHANGE_WORKER, "heard_ms", "awaited", "look_ms")
_CHANGE_LEASE: Final = ("lease_id", "was", "state", "due_ms", "ended_ms", "record")
_USE_GRANT: Final = ("grant_id", "was", "used_by", "record")
_encode = msgspec.msgpack.Encoder().encode
decode_worker = msgspec.msgpack.Decoder(WorkerRecord).decode
decode_lease = msgspec.msgpack.Decoder(WorkerLease).decode
_grant = msgspec.msgpack.Decoder(WorkerApprovalGrant).decode


def worker_of(row: Row) -> WorkerRecord:
    """Read a worker with the time of its last heartbeat."""
    return msgspec.structs.replace(decode_worker(row[0]), heard_ms=row[1])


class _Rows(Generic[R]):
    """Rows of one table, as stored and as changed by the commands so far. A missing row is None."""

    def __init__(self, tx: Transaction, sql: str, read: Callable[[Row], R]) -> None:
        self.stored: dict[str, R | None] = {}
        self.now: dict[str, R | None] = {}
        self.changed: dict[str, R] = {}
        self._tx = tx
        self._sql = sql
        self._read = read

    def load(self, ids: Iterable[str]) -> None:
        wanted = [one for one in dict.fromkeys(ids) if one and one not in self.now]
        for some in chunks(wanted):
            self.stored.update(dict.fromkeys(some))
            for row in self._tx.execute(listing(self._sql, len(some)), some):
                self.stored[row[0]] = self._read(row[1:])
            self.now.update((one, self.stored[one]) for one in some)

    def get(self, key: str) -> R | None:
        if key not in self.now:
            self.load((key,))
        return self.now.get(key)

    def put(self, key: str, value: R) -> None:
        self.now[key] = self.changed[key] = value

    def changes(self) -> Iterator[tuple[R | None, R]]:
        """Return pairs of a stored row and its replacement."""
        return ((self.stored[key], value) for key, value in self.changed.items())


class SqliteBatch:
    """Made for one transaction."""

    def __init__(self, tx: Transaction, manager: WorkerFleetManager) -> None:
        self._tx = tx
        self._manager = manager
        self._policy: WorkerFleetPolicy = manager.policy
        self._workers = _Rows(tx, "SELECT worker_id, record, heard_ms FROM fleet_workers WHERE worker_id IN", worker_of)
        self._leases = _Rows(
            tx, "SELECT lease_id, record FROM fleet_leases WHERE lease_id IN", lambda row: decode_lease(row[0])
        )
        self._grants = _Rows(
            tx, "SELECT grant_id, record FROM fleet_grants WHERE grant_id IN", lambda row: _grant(row[0])
        )

    def decide(self, commands: Sequence[FleetCommand]) -> list[FleetDecision]:
        """Decide in order. Each command sees the earlier changes."""
        # Everything is read first: a statement between two decisions would write the journal entries of the first.
        self._leases.load(one.lease_id for one in commands)
        self._workers.load(self._worker_id(one) for one in commands)
        self._grants.load(one.grant_id for one in commands)
        fences = self._fences(sum(one.with_fence for one in commands))
        decisions = [self._decide(one, next(fences) if one.with_fence else 0) for one in commands]
        self._write()
        return decisions

    def _decide(self, command: FleetCommand, fence: int) -> FleetDecision:
        lease = None if command.with_fence else self._leases.get(command.lease_id)
        worker = self._workers.get(self._worker_id(command))
        situation = Situation(
            worker=worker,
            lease=lease,
            grant=self._grants.get(command.grant_id),
            open_leases=self._open_leases(worker) if command.with_open_leases and worker is not None else (),
            workers=self._count() if command.with_count else 0,
            fence=fence,
        )
        decision = self._manager.decide(command, situation, self._tx.now_ms)
        self._take(decision)
        return decision

    def _worker_id(self, command: FleetCommand) -> str:
        if command.worker_id or command.with_fence:
            return command.worker_id
        lease = self._leases.get(command.lease_id)
        return "" if lease is None else lease.worker_id

    def _open_leases(self, worker: WorkerRecord) -> tuple[WorkerLease, ...]:
        self._leases.load(worker.open_leases)
        found = (self._leases.get(lease_id) for lease_id in sorted(worker.open_leases))
        return tuple(lease for lease in found if lease is not None and lease.is_open)

    def _count(self) -> int:
        """Count the workers that are not removed, including the changes of this batch."""
        ((stored,),) = self._tx.execute("SELECT COUNT(*) FROM fleet_workers WHERE state <> 'removed'")
        before = sum(_counts(one) for one in self._workers.stored.values())
        return int(stored) - before + sum(_counts(one) for one in self._workers.now.values())

    def _fences(self, count: int) -> Iterator[int]:
        if not count:
            return iter(())
        ((last,),) = self._tx.execute("UPDATE fleet_fence SET last = last + ? RETURNING last", (count,))
        return iter(range(last - count + 1, last + 1))

    def _take(self, decision: FleetDecision) -> None:
        worker = decision.worker
        if decision.worker_changed and worker is not None:
            known = self._workers.get(worker.worker_id)
            _require(worker.revision == (known.revision if known else 0) + 1, "worker", worker.worker_id)
            self._workers.put(worker.worker_id, worker)
        for change in decision.leases:
            before = self._leases.get(change.lease.lease_id)
            _require((before.state if before else None) is change.was, "lease", change.lease.lease_id)
            self._leases.put(change.lease.lease_id, change.lease)
        if (grant := decision.grant) is not None:
            held = self._grants.get(grant.grant_id)
            _require((held is None) is decision.grant_is_new and not (held and held.used_by), "grant", grant.grant_id)
            self._grants.put(grant.grant_id, grant)
        for event in decision.events:
            self._tx.append(event)

    def _write(self) -> None:
        self._write_workers()
        self._write_leases()
        new = [
            (one.grant_id, one.used_by, one.expires_ms, _encode(one))
            for was, one in self._grants.changes()
            if was is None
        ]
        used = [(one.grant_id, "", one.used_by, _encode(one)) for was, one in self._grants.changes() if was is not None]
        self._insert("fleet_grants", new)
        self._update("fleet_grants", "used_by", _USE_GRANT, used)

    def _write_workers(self) -> None:
        """Write the changed workers. Most changes touch no index column, so that the index pages stay unchanged."""
        new: list[Row] = []
        changed: list[Row] = []
        moved: list[Row] = []
        for was, one in self._workers.changes():
            timing = self._timing(one)
            if was is None:
                stands = (one.worker_id, one.state.value, one.revision, one.live_session, one.heard_ms)
                new.append((*stands, *timing, one.workspaces_expected, _encode(one)))
            elif one.heard_ms > was.heard_ms or timing != self._timing(was):
                moved.append((*_worker_row(was, one), max(was.heard_ms, one.heard_ms), *timing))
            else:
                changed.append(_worker_row(was, one))
        self._insert("fleet_workers", new)
        self._update("fleet_workers", "revision", _CHANGE_WORKER, changed)
        self._update("fleet_workers", "revision", _MOVE_WORKER, moved)

    def _write_leases(self) -> None:
        new: list[Row] = []
        changed: list[Row] = []
        for was, one in self._leases.changes():
            stands = (one.state.value, one.due_ms(self._policy), one.ended_ms, _encode(one))
            if was is None:
                new.append((one.lease_id, one.worker_id, stands[0], one.fence, *stands[1:]))
            else:
                changed.append((one.lease_id, was.state.value, *stands))
        self._insert("fleet_leases", new)
        self._update("fleet_leases", "state", _CHANGE_LEASE, changed)

    def _insert(self, table: str, rows: list[Row]) -> None:
        for some in chunks(rows):
            self._tx.execute(_insertion(table, len(some), len(some[0])), _flat(some))
            _require(self._tx.changed() == len(some), table, some[0][0])

    def _update(self, table: str, compared: str, columns: tuple[str, ...], rows: list[Row]) -> None:
        for some in chunks(rows):
            self._tx.execute(_change(table, compared, columns, len(some)), _flat(some))
            _require(self._tx.changed() == len(some), table, some[0][0])

    def _timing(self, worker: WorkerRecord) -> tuple[int, int]:
        """Return the reaper's index columns: whether silence counts, and when else something may be due."""
        return int(worker.awaited), min(look_again_ms(worker, self._policy), NEVER_MS)


def chunks(items: Sequence[T]) -> Iterator[list[T]]:
    """Split into the fewest parts of the prepared sizes."""
    start = 0
    for size in SIZES:
        while len(items) - start >= size:
            yield list(items[start : start + size])
            start += size


def _worker_row(was: WorkerRecord, one: WorkerRecord) -> Row:
    stands = (one.worker_id, was.revision, one.state.value, one.revision, one.live_session)
    return (*stands, one.workspaces_expected, _encode(one))


def _counts(worker: WorkerRecord | None) -> bool:
    return worker is not None and worker.state.value != "removed"


def _flat(rows: Sequence[Row]) -> list[Any]:
    return [value for row in rows for value in row]


@cache
def listing(sql: str, count: int) -> str:
    return f"{sql} ({', '.join('?' * count)})"


@cache
def _insertion(table: str, count: int, width: int) -> str:
    return f"INSERT OR IGNORE INTO {table} VALUES {_values(count, width)}"  # noqa: S608


@cache
def _change(table: str, compared: str, columns: tuple[str, ...], count: int) -> str:
    """Update rows by their first column if ``compared`` still has the value of the second.

    The columns of a list of values have numbers. With names before the list, the library would not count the changes.
    """
    sets = ", ".join(f"{name} = new.column{place}" for place, name in enumerate(columns[2:], 3))
    return (
        f"UPDATE {table} SET {sets} FROM (VALUES {_values(count, len(columns))}) AS new"  # noqa: S608
        f" WHERE {table}.{columns[0]} = new.column1 AND {table}.{compared} = new.column2"
    )


def _values(count: int, width: int) -> str:
    return ", ".join([f"({', '.join('?' * width)})"] * count)


def _require(expected: bool, what: str, name: str) -> None:
    if not expected:
        raise ChangedMeanwhile(f"the {what} {name} is not what it was", id=name)


_SESSIONS: Final = "SELECT worker_id, live_session, held FROM fleet_workers WHERE worker_id IN"
_SET_BEAT: Final = "UPDATE fleet_workers SET heard_ms = MAX(heard_ms, ?) WHERE worker_id IN"


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
                held |= {row[0]: row[1:] for row in tx.execute(listing(_SESSIONS, len(some)), some)}
            received: list[str] = []
            stale, suspect = [], []
            for beat in beats:
                live_session, expected = held.get(beat.worker_id, (0, 0))
                if beat.session < 1 or beat.session != live_session:
                    stale.append(beat)
                    continue
                received.append(beat.worker_id)
                if beat.workspaces > expected:
                    suspect.append(beat)
            for some in chunks(received):
                tx.execute(listing(_SET_BEAT, len(some)), (tx.now_ms, *some))
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
        # Open leases are few and have an index.
        rows = self._store.read(
            f"SELECT record FROM fleet_leases {'INDEXED BY fleet_leases_open ' if only_open else ''}WHERE "  # noqa: S608
            f"{'ended_ms = 0 AND ' if only_open else ''}{'worker_id = :worker AND ' if worker_id else ''}"
            "(:before = '' OR lease_id < :before) ORDER BY lease_id DESC LIMIT :most",
            {"worker": worker_id, "before": before, "most": MAX_PER_ROUND},
        )
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
