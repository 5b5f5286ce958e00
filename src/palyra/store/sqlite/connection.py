"""The journal's tables in SQLite, connections that keep their promises, and what their errors mean.

The triggers make the tables append-only for every program that opens the file in good faith. The chain and the signed
checkpoints protect against one that drops them, or that turns recursive triggers off and replaces rows.
"""

import errno
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from palyra.errors import PalyraError
from palyra.store.event import EVENT_COLUMNS
from palyra.store.port import DatabaseDamaged, DiskFull, JournalBusy, JournalMissing, JournalReadOnly, UnknownFormat

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
