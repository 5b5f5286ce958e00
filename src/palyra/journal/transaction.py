"""What one unit of work may do: append events and run statements, all of it committed together or not at all."""

import os
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from palyra.errors import PalyraError
from palyra.journal.chain import GENESIS_HASH, event_hash
from palyra.journal.event import MAX_FIELD_CHARS, Event, NewEvent
from palyra.journal.redact import Redactor
from palyra.journal.sqlite_faults import fault_of
from palyra.journal.sqlite_schema import INSERT_EVENT

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _CROCKFORD for low in _CROCKFORD]
_RANDOM_BITS = 80
_ULID_CHARS = 26
_PAIR_BITS = 10
_PAIR_MASK = (1 << _PAIR_BITS) - 1
# Statements that would end or leave the transaction all units of a group share.
_NOT_IN_A_UNIT = frozenset(
    ("BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "PRAGMA", "VACUUM")
)


class Head:
    """The newest event's place, as read inside the transaction that extends it."""

    __slots__ = ("hash", "seq")

    def __init__(self, seq: int, hash_: bytes) -> None:
        self.seq = seq
        self.hash = hash_

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> "Head":
        row = connection.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return cls(*row) if row else cls(0, GENESIS_HASH)


class Transaction:
    """Valid only while the work it is given to runs. ``now_ms`` is one instant for the whole unit."""

    def __init__(self, connection: sqlite3.Connection, head: Head, now_ms: int, redactor: Redactor) -> None:
        self.now_ms = now_ms
        self.fault: PalyraError | None = None
        self.events: list[Event] = []
        self._connection: sqlite3.Connection | None = connection
        self._head = head
        self._redactor = redactor
        self._changed = 0

    def append(self, new: NewEvent) -> Event:
        """Redacts, chains and inserts. The event is durable when the transaction's caller gets its result."""
        head, text = self._head, self._redactor.text
        seq, prev_hash, time_ms, kind = head.seq + 1, head.hash, self.now_ms, new.kind
        id_ = new_event_id(time_ms)
        actor, principal = text(new.actor)[:MAX_FIELD_CHARS], text(new.principal)[:MAX_FIELD_CHARS]
        run, call = text(new.run)[:MAX_FIELD_CHARS], text(new.call)[:MAX_FIELD_CHARS]
        payload = self._redactor.payload(new.payload)
        hash_ = event_hash(
            seq,
            id_.encode(),
            time_ms,
            kind.encode(),
            actor.encode(),
            principal.encode(),
            run.encode(),
            call.encode(),
            payload,
            prev_hash,
        )
        self._run(INSERT_EVENT, (seq, id_, time_ms, kind, actor, principal, run, call, payload, prev_hash, hash_))
        event = Event(
            seq=seq,
            id=id_,
            time_ms=time_ms,
            kind=kind,
            actor=actor,
            principal=principal,
            run=run,
            call=call,
            payload=payload,
            prev_hash=prev_hash,
            hash=hash_,
        )
        head.seq, head.hash = seq, hash_
        self.events.append(event)
        return event

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a SELECT or of RETURNING; an empty list for anything else."""
        if sql.lstrip()[:10].split(maxsplit=1)[0].rstrip(";").upper() in _NOT_IN_A_UNIT:
            raise ValueError(f"a unit of work may not run {sql[:40]!r}: its transaction is shared with others")
        cursor = self._run(sql, params)
        rows = cursor.fetchall() if cursor.description is not None else []
        self._changed = cursor.rowcount
        return rows

    def changed(self) -> int:
        """How many rows the last statement inserted, updated or deleted."""
        return max(self._changed, 0)

    def finish(self) -> None:
        self._connection = None

    def _run(self, sql: str, params: Sequence[Any] | Mapping[str, Any]) -> sqlite3.Cursor:
        if self._connection is None:
            raise RuntimeError("this transaction is over: use it only inside the work it was given to")
        try:
            return self._connection.execute(sql, params)
        except sqlite3.Error as error:
            # Kept aside, so that work which swallows the error still cannot be taken for done.
            self.fault = self.fault or fault_of(error)
            raise


def new_event_id(now_ms: int) -> str:
    """A ULID for this instant. Written out here because the library's takes as long as the whole insert."""
    number = (now_ms << _RANDOM_BITS) | int.from_bytes(os.urandom(_RANDOM_BITS // 8), "big")
    return "".join([_PAIRS[(number >> shift) & _PAIR_MASK] for shift in range((_ULID_CHARS - 2) * 5, -1, -_PAIR_BITS)])
