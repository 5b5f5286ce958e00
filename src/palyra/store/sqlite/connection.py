"""SQLite: the journal's tables, connections, the transaction of a unit of work, and the meaning of errors.

The triggers make the tables append-only for every program that opens the file in good faith. The chain and the signed
checkpoints protect against one that drops them, or that turns recursive triggers off and replaces rows.
"""

import errno
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from palyra.errors import PalyraError
from palyra.store.event import EVENT_COLUMNS, Event, NewEvent
from palyra.store.port import (
    EMPTY_HEAD,
    DatabaseDamaged,
    DiskFull,
    EventLog,
    Head,
    JournalBusy,
    JournalMissing,
    JournalReadOnly,
    Params,
    UnknownFormat,
)

STORE_FORMAT = "palyra.journal.store/1"
# How long a writer waits for another process's transaction before it fails.
BUSY_TIMEOUT_SECONDS = 10.0
# SQLite's own busy handler retries ever more seldom, and misses the short gaps between a busy process's transactions.
_RETRY_SECONDS = 0.0005
# The primary code is the low byte; the rest tells where in SQLite the error arose.
_PRIMARY_CODE = 0xFF

# Rows of one statement: a row among sixteen takes three quarters of the time of a row alone; more save hardly anything.
ROWS_AT_ONCE = 16
_ONE_ROW = f"({', '.join('?' * len(EVENT_COLUMNS.split(', ')))})"
# By the number of rows. A failure rolls the whole transaction back, so with OR FAIL SQLite keeps no copy of the pages
# for undoing this statement alone: a fifth of the time.
INSERT_EVENTS = tuple(
    f"INSERT OR FAIL INTO events ({EVENT_COLUMNS}) VALUES {', '.join([_ONE_ROW] * rows)}"  # noqa: S608
    for rows in range(ROWS_AT_ONCE + 1)
)

_DDL = (
    "CREATE TABLE IF NOT EXISTS journal_format (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS events (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL, time_ms INTEGER NOT NULL, kind TEXT NOT NULL, actor TEXT NOT NULL,
        principal TEXT NOT NULL, run TEXT NOT NULL, call TEXT NOT NULL, payload BLOB NOT NULL,
        prev_hash BLOB NOT NULL, hash BLOB NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX IF NOT EXISTS events_by_id ON events (id)",
    "CREATE INDEX IF NOT EXISTS events_by_run ON events (run) WHERE run <> ''",
    "CREATE INDEX IF NOT EXISTS events_by_call ON events (call) WHERE call <> ''",
    """CREATE TABLE IF NOT EXISTS checkpoints (
        number INTEGER PRIMARY KEY, last_seq INTEGER NOT NULL, document BLOB NOT NULL
    ) STRICT""",
    """CREATE TRIGGER IF NOT EXISTS checkpoints_extend BEFORE INSERT ON checkpoints
        WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM checkpoints)
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only: a checkpoint takes the next number'); END""",
    *(
        f"""CREATE TRIGGER IF NOT EXISTS {table}_no_{change.lower()} BEFORE {change} ON {table}
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"""
        for table in ("events", "checkpoints")
        for change in ("UPDATE", "DELETE")
    ),
)


def open_writer(path: Path, schema: Sequence[str]) -> sqlite3.Connection:
    """Open the file, made 0600 where it is absent. A commit on the connection is on disk when it returns."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except PermissionError as error:
        raise JournalReadOnly(f"{path} cannot be written: {error.strerror}") from error
    except OSError as error:
        kind = JournalReadOnly if error.errno == errno.EROFS else JournalMissing
        raise kind(f"{path} cannot be opened: {error.strerror}") from error
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA recursive_triggers = ON")
            connection.execute("PRAGMA busy_timeout = 0")
            _apply_schema(connection, schema)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translate_error(error) from error
    return connection


def begin(connection: sqlite3.Connection) -> None:
    """Begin the one transaction that writes. Wait while another process has it."""
    until = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while time.monotonic() < until:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return
    connection.execute("BEGIN IMMEDIATE")


def open_reader(path: Path, *, text_as_bytes: bool = False) -> sqlite3.Connection:
    """Open a connection that cannot write, in a directory that may not be writable either."""
    if not path.exists():
        raise JournalMissing(f"there is no journal at {path}")
    try:
        return _open_read_only(path, "mode=ro", text_as_bytes)
    except sqlite3.OperationalError as error:
        if path.with_name(path.name + "-wal").exists():
            raise translate_error(error) from error
        # Closed cleanly, in a directory where SQLite cannot make its shared-memory file: nobody can be writing.
        return _open_read_only(path, "immutable=1", text_as_bytes)
    except sqlite3.Error as error:
        raise translate_error(error) from error


def _open_read_only(path: Path, mode: str, text_as_bytes: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        _check_format(connection)
    except BaseException:
        connection.close()
        raise
    connection.text_factory = bytes if text_as_bytes else _decode
    return connection


def _decode(raw: bytes) -> str:
    """Turn invalid UTF-8 into escapes: a reader must not fail on damage that verifying will name."""
    return raw.decode("utf-8", "backslashreplace")


def _apply_schema(connection: sqlite3.Connection, schema: Sequence[str]) -> None:
    begin(connection)
    try:
        if not _has_tables(connection):
            for statement in _DDL:
                connection.execute(statement)
            connection.execute("INSERT INTO journal_format VALUES (?)", (STORE_FORMAT,))
        else:
            _check_format(connection)
        for statement in schema:
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_format(connection: sqlite3.Connection) -> None:
    if not _has_tables(connection):
        raise UnknownFormat("this database holds no journal")
    known = [name for (name,) in connection.execute("SELECT name FROM journal_format")]
    if known != [STORE_FORMAT]:
        raise UnknownFormat(f"the journal has the format {known!r:.100}, and this version reads {STORE_FORMAT!r}")


def _has_tables(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'journal_format'"
    return connection.execute(query).fetchone() is not None


def fault_of(error: sqlite3.Error) -> PalyraError | None:
    """Return the store's fault behind ``error``; None if it is about one statement, such as a constraint."""
    primary = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    match primary:
        case sqlite3.SQLITE_FULL:
            return DiskFull("the disk is full")
        case sqlite3.SQLITE_IOERR:
            return DiskFull(f"the disk refused a read or a write: {error}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return JournalBusy("the database stayed locked by another process")
        case sqlite3.SQLITE_READONLY:
            return JournalReadOnly("the database cannot be written")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return JournalMissing("the database cannot be opened")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return DatabaseDamaged(f"the database file is damaged: {error}")
        case _:
            return None


def translate_error(error: sqlite3.Error) -> BaseException:
    return fault_of(error) or error


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
    """Connection and event log that the units of one commit share.

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
    """Transaction of one unit of work, valid while the unit runs. ``now_ms`` is one instant for the whole unit."""

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
                # A unit that only appends needs no savepoint: to undo it, its events are not inserted.
                group.flush(self._events_before)
                group.connection.execute("SAVEPOINT unit")
                self._in_savepoint = True
            group.flush()
            cursor = group.connection.execute(sql, params)
            rows = cursor.fetchall() if cursor.description is not None else []
        except sqlite3.Error as error:
            # Work that swallows the error still fails by this.
            self.fault = self.fault or fault_of(error)
            raise
        self._changed = cursor.rowcount
        return rows

    def changed(self) -> int:
        """Return how many rows the last statement inserted, updated or deleted."""
        return max(self._changed, 0)

    def finish(self) -> None:
        group, self._group = self._require_group(), None
        if self._in_savepoint:
            group.connection.execute("RELEASE unit")

    def undo(self) -> None:
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
