"""What one unit of work may do: append events and run statements, all of it committed together or not at all."""

import sqlite3
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from palyra.errors import PalyraError
from palyra.store.commit import Outcome, Unit
from palyra.store.event import Event, NewEvent
from palyra.store.port import EMPTY_HEAD, EventLog, Head, Params
from palyra.store.sqlite.connection import INSERT_EVENTS, ROWS_AT_ONCE, fault_of

# Statements that would end or leave the transaction that all units of a group share.
_NOT_IN_A_UNIT = frozenset(
    ("BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "PRAGMA", "VACUUM")
)


# Statements are few, and the same again and again.
@lru_cache(maxsize=1024)
def _check_statement(sql: str) -> None:
    if sql.lstrip()[:10].split(maxsplit=1)[0].rstrip(";").upper() in _NOT_IN_A_UNIT:
        raise ValueError(f"a unit of work may not run {sql[:40]!r}: its transaction is shared with others")


def read_head(connection: sqlite3.Connection) -> Head:
    row = connection.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    return (row[0], row[1]) if row else EMPTY_HEAD


class Group:
    """What the units of one commit share: the connection, and the log with the events not yet inserted.

    The head is read inside the transaction that extends it, because other processes write the same file. Rows are
    inserted together: before the next statement that could see them, and at the end.
    """

    def __init__(self, connection: sqlite3.Connection, log: EventLog, now_ms: int) -> None:
        self.connection = connection
        self.log = log
        self.now_ms = now_ms
        head = read_head(connection)
        self.first_seq = head[0]
        self.inserted = 0
        log.begin(head, now_ms)

    def flush(self, until: int | None = None) -> None:
        """Insert the events of this commit, or the first ``until`` of them."""
        events = self.log.events[self.inserted : until]
        for start in range(0, len(events), ROWS_AT_ONCE):
            rows = [msgspec.structs.astuple(event) for event in events[start : start + ROWS_AT_ONCE]]
            self.connection.execute(INSERT_EVENTS[len(rows)], tuple(chain.from_iterable(rows)))
        self.inserted += len(events)


class SqliteTransaction:
    """Valid only while the work it is given to runs. ``now_ms`` is one instant for the whole unit."""

    def __init__(self, group: Group) -> None:
        self.now_ms = group.now_ms
        self.fault: PalyraError | None = None
        self._group: Group | None = group
        self._events_before = len(group.log.events)
        self._in_savepoint = False
        self._changed = 0

    def append(self, new: NewEvent) -> Event:
        """Redact, chain and record an event. It is durable when the transaction's caller gets its result."""
        return (self._group or self._require_group()).log.append(new)

    def append_all(self, news: Iterable[NewEvent]) -> None:
        for new in news:
            self.append(new)

    def execute(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT or of RETURNING; an empty list for anything else."""
        _check_statement(sql)
        group = self._group or self._require_group()
        try:
            if not self._in_savepoint:
                # A unit that only appends needs none: its events are simply not inserted.
                group.flush(self._events_before)
                group.connection.execute("SAVEPOINT unit")
                self._in_savepoint = True
            group.flush()
            cursor = group.connection.execute(sql, params)
            rows = cursor.fetchall() if cursor.description is not None else []
        except sqlite3.Error as error:
            # Kept, so that work which swallows the error still fails.
            self.fault = self.fault or fault_of(error)
            raise
        self._changed = cursor.rowcount
        return rows

    def changed(self) -> int:
        """Return how many rows the last statement inserted, updated or deleted."""
        return max(self._changed, 0)

    def finish(self) -> None:
        """Keep what the unit did, as part of its group."""
        group, self._group = self._require_group(), None
        if self._in_savepoint:
            group.connection.execute("RELEASE unit")

    def undo(self) -> None:
        """Take back what the unit did and nothing else."""
        group, self._group = self._require_group(), None
        group.log.undo(self._events_before)
        if self._in_savepoint:
            group.inserted = self._events_before
            group.connection.execute("ROLLBACK TO unit")
            group.connection.execute("RELEASE unit")

    def _require_group(self) -> Group:
        if self._group is None:
            raise RuntimeError("this transaction is over: use it only inside the work it was given to")
        return self._group


def perform_unit(unit: Unit, transaction: SqliteTransaction) -> Outcome:
    try:
        result = unit.work(transaction)
    except BaseException as error:
        if transaction.fault is not None:
            raise transaction.fault from error
        transaction.undo()
        # A future cannot carry a StopIteration.
        return unit, None, RuntimeError(f"the work raised {error!r}") if isinstance(error, StopIteration) else error
    if transaction.fault is not None:
        raise transaction.fault
    transaction.finish()
    return unit, result, None
