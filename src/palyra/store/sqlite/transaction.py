"""What one unit of work may do: append events and run statements, all of it committed together or not at all."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from palyra.errors import PalyraError
from palyra.ids import EventIds
from palyra.journal.chain import GENESIS_HASH, event_hash
from palyra.journal.redaction import Redactor
from palyra.store.event import Event, NewEvent
from palyra.store.sqlite.faults import fault_of
from palyra.store.sqlite.schema import INSERT_EVENTS, ROWS_AT_ONCE

EventRow = tuple[int, str, int, str, str, str, str, str, bytes, bytes, bytes]

# Statements that would end or leave the transaction all units of a group share.
_NOT_IN_A_UNIT = frozenset(
    ("BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "PRAGMA", "VACUUM")
)


# Statements are few, and the same again and again.
@lru_cache(maxsize=1024)
def _require_fit(sql: str) -> None:
    if sql.lstrip()[:10].split(maxsplit=1)[0].rstrip(";").upper() in _NOT_IN_A_UNIT:
        raise ValueError(f"a unit of work may not run {sql[:40]!r}: its transaction is shared with others")


class Group:
    """What the units of one commit share: the connection, the chain's head, and event rows not yet inserted.

    The head is read inside the transaction that extends it, because other processes write the same file. Rows are
    inserted together: before the next statement that could see them, and at the end.
    """

    def __init__(self, connection: sqlite3.Connection, redactor: Redactor, ids: EventIds, now_ms: int) -> None:
        self.connection = connection
        self.ids = ids
        self.redactor = redactor
        self.now_ms = now_ms
        self.seq, self.hash = read_head(connection)
        self.rows: list[EventRow] = []
        self.events: list[Event] = []

    def flush(self) -> None:
        rows = self.rows
        if not rows:
            return
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            self.connection.execute(INSERT_EVENTS[len(some)], tuple(chain.from_iterable(some)))
        rows.clear()


def read_head(connection: sqlite3.Connection) -> tuple[int, bytes]:
    row = connection.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    return (row[0], row[1]) if row else (0, GENESIS_HASH)


class SqliteTransaction:
    """Valid only while the work it is given to runs. ``now_ms`` is one instant for the whole unit."""

    def __init__(self, group: Group) -> None:
        self.now_ms = group.now_ms
        self.fault: PalyraError | None = None
        self._group: Group | None = group
        self._before = (group.seq, group.hash, len(group.events))
        self._rows_before = len(group.rows)
        self._in_savepoint = False
        self._changed = 0

    def append(self, new: NewEvent) -> Event:
        """Redacts, chains and records. The event is durable when the transaction's caller gets its result."""
        group = self._group or self._live()
        redactor = group.redactor
        seq, id_, payload = group.seq + 1, group.ids.next(self.now_ms), redactor.payload(new.payload)
        names = redactor.fields(new.actor, new.principal, new.run, new.call)
        actor, principal, run, call = (name.encode() for name in names)
        hash_ = event_hash(
            seq, id_.encode(), self.now_ms, new.kind.encode(), actor, principal, run, call, payload, group.hash
        )
        row = (seq, id_, self.now_ms, new.kind, *names, payload, group.hash, hash_)
        event = Event(*row)
        group.rows.append(row)
        group.events.append(event)
        group.seq, group.hash = seq, hash_
        return event

    def append_all(self, news: Iterable[NewEvent]) -> None:
        for new in news:
            self.append(new)

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a SELECT or of RETURNING; an empty list for anything else."""
        _require_fit(sql)
        group = self._group or self._live()
        try:
            if not self._in_savepoint:
                self._enter_savepoint(group)
            if group.rows:
                group.flush()
            cursor = group.connection.execute(sql, params)
            rows = cursor.fetchall() if cursor.description is not None else []
        except sqlite3.Error as error:
            # Kept aside, so that work which swallows the error still cannot be taken for done.
            self.fault = self.fault or fault_of(error)
            raise
        self._changed = cursor.rowcount
        return rows

    def changed(self) -> int:
        """How many rows the last statement inserted, updated or deleted."""
        return max(self._changed, 0)

    def finish(self) -> None:
        """Keeps what the unit did, as part of its group."""
        group, self._group = self._live(), None
        if self._in_savepoint:
            group.connection.execute("RELEASE unit")

    def undo(self) -> None:
        """Takes back what the unit did and nothing else."""
        group, self._group = self._live(), None
        del group.rows[self._rows_before :]
        group.seq, group.hash, events = self._before
        del group.events[events:]
        if self._in_savepoint:
            group.connection.execute("ROLLBACK TO unit")
            group.connection.execute("RELEASE unit")

    def _enter_savepoint(self, group: Group) -> None:
        """A unit that only appends needs none: its rows are simply not inserted."""
        own = group.rows[self._rows_before :]
        del group.rows[self._rows_before :]
        group.flush()
        group.connection.execute("SAVEPOINT unit")
        group.rows += own
        self._rows_before = 0
        self._in_savepoint = True

    def _live(self) -> Group:
        if self._group is None:
            raise RuntimeError("this transaction is over: use it only inside the work it was given to")
        return self._group
