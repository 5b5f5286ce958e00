"""The journal's tables in SQLite, and connections that keep their promises.

The triggers make the tables append-only for every program that opens the file in good faith; against one that drops
them, or that turns recursive triggers off and replaces rows, stand the chain and the signed checkpoints.
"""

import errno
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from palyra.store.sqlite.faults import PRIMARY_CODE, JournalMissing, JournalReadOnly, UnknownFormat, raised

STORE_FORMAT = "palyra.journal.store/1"
# How long a writer waits for another process's transaction before it says so.
BUSY_TIMEOUT_SECONDS = 10.0
# Left to itself SQLite looks ever more seldom, and misses the short whiles between the transactions of a process that
# is busy: whose turn it is would be decided by luck.
_LOOK_AGAIN_SECONDS = 0.0005

EVENT_COLUMNS = "seq, id, time_ms, kind, actor, principal, run, call, payload, prev_hash, hash"
# Rows of one statement: with sixteen, a row takes three quarters of the time it takes alone, and with more hardly less.
ROWS_AT_ONCE = 16
_ONE_ROW = f"({', '.join('?' * len(EVENT_COLUMNS.split(', ')))})"
# By the number of rows; there is none for no rows. What fails takes its whole transaction with it, so SQLite need
# not keep a copy of every page in case that only this statement were undone: a fifth of the time.
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
    """Makes the file 0600 where it is absent; a commit on the connection is on disk when it returns."""
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
            _apply(connection, schema)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise raised(error) from error
    return connection


def begin(connection: sqlite3.Connection) -> None:
    """Begins the one transaction that writes. Waits while another process has it."""
    until = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while time.monotonic() < until:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & PRIMARY_CODE != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(_LOOK_AGAIN_SECONDS)
        else:
            return
    connection.execute("BEGIN IMMEDIATE")


def open_reader(path: Path, *, text_as_bytes: bool = False) -> sqlite3.Connection:
    """A connection that cannot write, in a directory that may not be writable either."""
    if not path.exists():
        raise JournalMissing(f"there is no journal at {path}")
    try:
        return _open_read_only(path, "mode=ro", text_as_bytes)
    except sqlite3.OperationalError as error:
        if path.with_name(path.name + "-wal").exists():
            raise raised(error) from error
        # Closed cleanly, and the directory does not let SQLite make its shared-memory file: nobody can be writing.
        return _open_read_only(path, "immutable=1", text_as_bytes)
    except sqlite3.Error as error:
        raise raised(error) from error


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
    connection.text_factory = bytes if text_as_bytes else _readable
    return connection


def _readable(raw: bytes) -> str:
    """Someone's broken text is shown as escapes: a reader must not fail on what verifying will name."""
    return raw.decode("utf-8", "backslashreplace")


def _apply(connection: sqlite3.Connection, schema: Sequence[str]) -> None:
    begin(connection)
    try:
        if not _tables(connection):
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
    if not _tables(connection):
        raise UnknownFormat("this database holds no journal")
    known = [name for (name,) in connection.execute("SELECT name FROM journal_format")]
    if known != [STORE_FORMAT]:
        raise UnknownFormat(f"the journal has the format {known!r:.100}, and this version reads {STORE_FORMAT!r}")


def _tables(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'journal_format'"
    return connection.execute(query).fetchone() is not None
