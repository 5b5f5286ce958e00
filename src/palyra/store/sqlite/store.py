"""Store in SQLite: the journal and every table whose changes must commit together with their record."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from palyra.clock import Clock
from palyra.limits import JOURNAL_DISK_RESERVE_BYTES
from palyra.store.event import EVENT_COLUMNS, Event
from palyra.store.port import (
    EMPTY_HEAD,
    DatabaseDamaged,
    EventLog,
    Head,
    JournalClosed,
    NoSuchEvent,
    Params,
    Snapshot,
    Transaction,
)
from palyra.store.sqlite.connection import open_reader, open_writer, translate_error
from palyra.store.sqlite.writer import MAX_WAITING_EVENTS, DiskReserve, Subscription, Unit, Writer

DATABASE_NAME = "palyra.db"
RESERVE_NAME = "palyra.ballast"
# Idle connections kept for the next reader; more are opened when that many threads read at once, and closed after.
_KEPT_CONNECTIONS = 4
# One answer's events: a page on a screen or a burst of a stream.
MAX_EVENTS_PER_READ = 10_000
# Writes within this time cause one wake-up. A missed one is repaired after the second time.
_GATHER_MS = 50
_RECHECK_MS = 1_000
_PAGE = 500

T = TypeVar("T")


class SqliteReader:
    """Reader of committed data, for the store and for commands beside a daemon or without one. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._release(open_reader(path))

    def read(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        connection = self._acquire()
        try:
            return connection.execute(sql, params).fetchall()
        except sqlite3.Error as error:
            raise translate_error(error) from error
        finally:
            self._release(connection)

    def events_since(
        self, seq: int, limit: int, *, run: str = "", call: str = "", kind: str = "", newest_first: bool = False
    ) -> list[Event]:
        """Return at most ``limit`` events after ``seq`` in order; with ``newest_first`` the last of them, backwards."""
        filters = {"run": run, "call": call, "kind": kind}
        chosen = {column: value for column, value in filters.items() if value}
        # The repeated comparison with '' lets SQLite use the partial indexes.
        where = "".join(f" AND {column} = :{column} AND {column} <> ''" for column in chosen)
        rows = self.read(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE seq > :seq{where} "  # noqa: S608
            f"ORDER BY seq {'DESC' if newest_first else 'ASC'} LIMIT :limit",
            {**chosen, "seq": seq, "limit": min(limit, MAX_EVENTS_PER_READ)},
        )
        return [_event(row) for row in rows]

    def event(self, seq_or_id: int | str) -> Event:
        column = "seq" if isinstance(seq_or_id, int) else "id"
        rows = self.read(f"SELECT {EVENT_COLUMNS} FROM events WHERE {column} = ?", (seq_or_id,))  # noqa: S608
        if not rows:
            raise NoSuchEvent(f"there is no event {seq_or_id}")
        return _event(rows[0])

    def head(self) -> Head:
        rows = self.read("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1")
        return (rows[0][0], rows[0][1]) if rows else EMPTY_HEAD

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        connection = open_reader(self.path, text_as_bytes=True)
        try:
            connection.execute("BEGIN")
            yield SqliteSnapshot(connection)
        except sqlite3.Error as error:
            raise translate_error(error) from error
        finally:
            connection.close()

    def data_version(self) -> int:
        """Return a number that changes when another connection commits; compare it on one reader only."""
        return int(self.read("PRAGMA data_version")[0][0])

    def follow(
        self, after: int, *, run: str = "", call: str = "", kind: str = "", stop: threading.Event | None = None
    ) -> Iterator[Event]:
        """Yield events after ``after`` as any process commits them, until ``stop`` is set.

        It watches the database's files instead of asking them in a loop.
        """
        from watchfiles import watch

        names = {self.path.name, f"{self.path.name}-wal"}
        seen, version = after, -1
        changes = watch(
            self.path.parent,
            watch_filter=lambda _change, path: Path(path).name in names,
            debounce=_GATHER_MS,
            step=_GATHER_MS,
            rust_timeout=_RECHECK_MS,
            yield_on_timeout=True,
            stop_event=stop,
            recursive=False,
        )
        while True:
            current = self.data_version()
            while current != version:
                # Read until a page is not full; only then is this version of the data used up.
                page = self.events_since(seen, _PAGE, run=run, call=call, kind=kind)
                yield from page
                if page:
                    seen = page[-1].seq
                if len(page) < _PAGE:
                    version = current
            if next(changes, None) is None:
                return

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _acquire(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise JournalClosed("the journal is closed")
            if self._idle:
                return self._idle.pop()
        return open_reader(self.path)

    def _release(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _KEPT_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()


class SqliteSnapshot:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, params: Params = ()) -> Iterator[tuple[Any, ...]]:
        try:
            for row in self._connection.execute(sql, params):  # noqa: UP028 - a cursor closed late raises
                yield row
        except sqlite3.DatabaseError as error:
            raise DatabaseDamaged(f"the database file is damaged: {error}") from error


class SqliteStore:
    """Made with ``open``. Several processes may hold a store on one file; each extends the same chain."""

    def __init__(self, reader: SqliteReader, writer: Writer, reserve: DiskReserve) -> None:
        self.reader = reader
        self._writer = writer
        self._reserve = reserve

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        clock: Clock,
        log: EventLog,
        schema: Sequence[str] = (),
        reserve_bytes: int = JOURNAL_DISK_RESERVE_BYTES,
    ) -> Self:
        """Open the store. ``schema`` is the DDL of other tables, each statement harmless when run again."""
        connection = open_writer(path, schema)
        try:
            reader = SqliteReader(path)
            reserve = DiskReserve(path.with_name(RESERVE_NAME), reserve_bytes, clock)
            reserve.secure()
            writer = Writer(connection, clock=clock, log=log, reserve=reserve, reader=reader)
        except BaseException:
            connection.close()
            raise
        return cls(reader, writer, reserve)

    @property
    def degraded(self) -> str | None:
        """Return why new work is refused at the moment, or None."""
        if not self._reserve.is_held():
            return "the space held back for a full disk could not be taken"
        return "the disk is full" if self._writer.disk_full else None

    async def transact(self, work: Callable[[Transaction], T], *, essential: bool = False) -> T:
        return await self._submit(work, essential=essential, keep=False)

    def submit(self, work: Callable[[Transaction], T], *, essential: bool = False) -> asyncio.Future[T]:
        return self._submit(work, essential=essential, keep=True)

    def _submit(self, work: Callable[[Transaction], T], *, essential: bool, keep: bool) -> asyncio.Future[T]:
        unit = Unit(work, asyncio.get_running_loop(), essential=essential, keep=keep)
        self._writer.submit(unit)
        return unit.future  # type: ignore[return-value]

    def transact_blocking(self, work: Callable[[Transaction], T], *, essential: bool = False) -> T:
        unit = Unit(work, None, essential=essential)
        self._writer.submit(unit)
        result: T = unit.future.result()
        return result

    def seal(self) -> None:
        """Put all events so far under a checkpoint."""
        unit = Unit(lambda _transaction: None, None, essential=True, seal=True)
        self._writer.submit(unit)
        unit.future.result()

    def read(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        return self.reader.read(sql, params)

    def events_since(self, seq: int, limit: int, *, run: str = "", call: str = "", kind: str = "") -> list[Event]:
        return self.reader.events_since(seq, limit, run=run, call=call, kind=kind)

    def head(self) -> Head:
        return self.reader.head()

    def subscribe(self, capacity: int = MAX_WAITING_EVENTS) -> Subscription:
        """Return the events committed by this process from now on. Call it on the event loop that reads them."""
        subscription = Subscription(self._writer.notifier.remove, capacity)
        self._writer.notifier.add(subscription)
        return subscription

    def close(self) -> None:
        """Finish waiting work, seal the rest, and close the files. A second call does nothing."""
        self._writer.close()
        self.reader.close()


def _event(row: Sequence[Any]) -> Event:
    """Turn columns of the wrong type into text, so that a damaged event can still be printed."""
    seq, id_, time_ms, kind, actor, principal, run, call, payload, prev_hash, hash_ = row
    names = map(str, (kind, actor, principal, run, call))
    data = payload if isinstance(payload, bytes) else str(payload).encode()
    hashes = (each if isinstance(each, bytes) else b"" for each in (prev_hash, hash_))
    values = (seq, str(id_), time_ms if isinstance(time_ms, int) else 0, *names, data, *hashes)
    return Event(*values)
