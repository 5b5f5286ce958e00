"""Reading the journal's database: by the store itself, and by commands that run beside a daemon or without one."""

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event as Signal
from typing import Any, Self

from palyra.errors import InvalidInput
from palyra.journal.chain import GENESIS_HASH
from palyra.journal.checkpoint import Checkpoint, InvalidCheckpoint, parse_checkpoint
from palyra.journal.verify import Damage, JournalTampered, JournalVerifier, Start, VerifyReport
from palyra.signing.dsse import Verifier
from palyra.store.event import Event, Row
from palyra.store.sqlite.faults import JournalClosed, raised
from palyra.store.sqlite.schema import EVENT_COLUMNS, open_reader

# Idle connections kept for the next reader; more are opened when that many threads read at once, and closed after.
_KEPT_CONNECTIONS = 4
# One answer's events: a page on a screen or a burst of a stream.
MAX_EVENTS_PER_READ = 10_000


class NoSuchEvent(InvalidInput):
    code = "journal.no_such_event"
    hint = "give a sequence number or an event id, as `palyra journal tail` prints them"


class JournalReader:
    """Thread-safe. Every method is one short read, except ``walk`` and ``verify``, which stream."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._release(open_reader(path))

    def read(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        connection = self._taken()
        try:
            return connection.execute(sql, params).fetchall()
        except sqlite3.Error as error:
            raise raised(error) from error
        finally:
            self._release(connection)

    def events_since(
        self, seq: int, limit: int, *, run: str = "", call: str = "", kind: str = "", newest_first: bool = False
    ) -> list[Event]:
        """Events after ``seq`` in order, at most ``limit``; with ``newest_first`` the last of them, backwards."""
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

    def head(self) -> tuple[int, bytes]:
        """The newest event's number and hash; 0 and the genesis hash of an empty journal."""
        rows = self.read("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1")
        return (rows[0][0], rows[0][1]) if rows else (0, GENESIS_HASH)

    def newest_checkpoint(self) -> Checkpoint | None:
        rows = self.read("SELECT document FROM checkpoints ORDER BY number DESC LIMIT 1")
        return parse_checkpoint(rows[0][0]) if rows else None

    def walk(
        self,
        verifiers: Sequence[Verifier],
        *,
        anchors: Sequence[Checkpoint] = (),
        first_seq: int = 1,
        last_seq: int | None = None,
    ) -> tuple[JournalVerifier, Start, Iterator[Row | Checkpoint]]:
        """A verifier over one consistent snapshot, where it starts, and the items it yields as they are checked."""
        connection = open_reader(self.path, text_as_bytes=True)
        try:
            connection.execute("BEGIN")
            start = _start(connection, first_seq)
            verifier = JournalVerifier(verifiers, anchors=anchors, start=start)
            end = last_seq if last_seq is not None else 2**62
            return verifier, start, _closing(connection, verifier, start, end)
        except sqlite3.Error as error:
            connection.close()
            raise raised(error) from error
        except BaseException:
            connection.close()
            raise

    def verify(self, verifiers: Sequence[Verifier], *, anchors: Sequence[Checkpoint] = ()) -> VerifyReport:
        verifier, _, items = self.walk(verifiers, anchors=anchors)
        for _item in items:
            pass
        return verifier.report

    def data_version(self) -> int:
        """A number that changes when another connection has committed; compare it on one reader only."""
        return int(self.read("PRAGMA data_version")[0][0])

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

    def _taken(self) -> sqlite3.Connection:
        """To be given back to ``_release``."""
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


def _event(row: Sequence[Any]) -> Event:
    """Columns as the tables promise them; whatever else someone put there becomes text, for ``show`` to show."""
    seq, id_, time_ms, kind, actor, principal, run, call, payload, prev_hash, hash_ = row
    return Event(
        seq=seq,
        id=str(id_),
        time_ms=time_ms if isinstance(time_ms, int) else 0,
        kind=str(kind),
        actor=str(actor),
        principal=str(principal),
        run=str(run),
        call=str(call),
        payload=payload if isinstance(payload, bytes) else str(payload).encode(),
        prev_hash=prev_hash if isinstance(prev_hash, bytes) else b"",
        hash=hash_ if isinstance(hash_, bytes) else b"",
    )


def _start(connection: sqlite3.Connection, first_seq: int) -> Start:
    if first_seq <= 1:
        return Start()
    row = connection.execute("SELECT hash FROM events WHERE seq = ?", (first_seq - 1,)).fetchone()
    if row is None:
        raise NoSuchEvent(f"there is no event {first_seq - 1} to start after")
    basis = connection.execute(
        "SELECT document FROM checkpoints WHERE last_seq < ? ORDER BY number DESC LIMIT 1", (first_seq,)
    ).fetchone()
    return Start(seq=first_seq, prev_hash=row[0], basis=_checkpoint(basis[0]) if basis else None)


def _closing(
    connection: sqlite3.Connection, verifier: JournalVerifier, start: Start, last_seq: int
) -> Iterator[Row | Checkpoint]:
    try:
        yield from verifier.walk(_rows(connection, start.seq, last_seq), _checkpoints(connection, start.seq, last_seq))
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, first_seq: int, last_seq: int) -> Iterator[Row]:
    seq = first_seq - 1
    query = f"SELECT {EVENT_COLUMNS} FROM events WHERE seq BETWEEN ? AND ? ORDER BY seq"  # noqa: S608
    try:
        for row in connection.execute(query, (first_seq, last_seq)):
            yield row
            seq = row[0]
    except sqlite3.DatabaseError as error:
        raise JournalTampered(
            f"event {seq + 1}: unreadable: the database file is damaged here", seq=seq + 1, kind=Damage.UNREADABLE
        ) from error


def _checkpoints(connection: sqlite3.Connection, first_seq: int, last_seq: int) -> Iterator[Checkpoint]:
    query = "SELECT number, last_seq, document FROM checkpoints WHERE last_seq BETWEEN ? AND ? ORDER BY number"
    for number, sealed, document in connection.execute(query, (first_seq, last_seq)):
        checkpoint = _checkpoint(document)
        if (checkpoint.number, checkpoint.last_seq) != (number, sealed):
            raise JournalTampered(
                f"checkpoint {number} is stored as another one", seq=checkpoint.first_seq, kind=Damage.CHECKPOINT
            )
        yield checkpoint


def _checkpoint(document: bytes) -> Checkpoint:
    try:
        return parse_checkpoint(document)
    except InvalidCheckpoint as error:
        raise JournalTampered(f"a stored checkpoint cannot be read: {error}", seq=1, kind=Damage.CHECKPOINT) from error


# Waiting for events that any process commits, by watching the database's files instead of asking them in a loop.

# Writes that come together are one wake-up; a watch that missed something is made good after this long.
_GATHER_MS = 50
_LOOK_AGAIN_MS = 1_000
_PAGE = 500


def follow(
    reader: JournalReader,
    after: int,
    *,
    run: str = "",
    call: str = "",
    kind: str = "",
    stop: Signal | None = None,
) -> Iterator[Event]:
    """Events after ``after`` as they are committed, until ``stop`` is set."""
    from watchfiles import watch

    names = {reader.path.name, f"{reader.path.name}-wal"}
    seen, version = after, -1
    changes = watch(
        reader.path.parent,
        watch_filter=lambda _change, path: Path(path).name in names,
        debounce=_GATHER_MS,
        step=_GATHER_MS,
        rust_timeout=_LOOK_AGAIN_MS,
        yield_on_timeout=True,
        stop_event=stop,
        recursive=False,
    )
    while True:
        current = reader.data_version()
        while current != version:
            # Read until a page is not full; only then is this version of the data used up.
            page = reader.events_since(seen, _PAGE, run=run, call=call, kind=kind)
            yield from page
            if page:
                seen = page[-1].seq
            if len(page) < _PAGE:
                version = current
        if next(changes, None) is None:
            return
