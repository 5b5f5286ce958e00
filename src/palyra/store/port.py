"""Interfaces of a store and of the event log it writes, and the store's faults. SQLite is the only engine."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from palyra.errors import InvalidInput, LimitExceeded, Tampered, Unavailable
from palyra.store.event import Event, NewEvent

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any]
# The number and the hash of the newest event.
Head = tuple[int, bytes]
EMPTY_HEAD: Head = (0, b"")


class Reader(Protocol):
    def read(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]: ...


class Transaction(Protocol):
    """One unit of work: its journal entries and its table changes become durable together, or not at all."""

    @property
    def now_ms(self) -> int: ...

    def append(self, event: NewEvent) -> Event: ...

    def append_all(self, news: Iterable[NewEvent]) -> None: ...

    def execute(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]: ...

    def changed(self) -> int: ...


class Store(Reader, Protocol):
    async def transact(self, work: Callable[[Transaction], T], *, essential: bool = False) -> T:
        """Run ``work`` in the writer's thread and return its result once it is on disk.

        An exception from ``work`` undoes it and is raised here; other callers of the same commit are not affected.
        ``work`` may run a second time if the disk was full, so it uses its transaction only.
        ``essential`` marks the end of work that already ran: it may use the space held back for a full disk.
        A caller that is cancelled while it waits does not know whether its work was committed.
        """
        ...

    def submit(self, work: Callable[[Transaction], T], *, essential: bool = False) -> asyncio.Future[T]:
        """Queue ``work`` at once and return the future of its result. A cancelled caller does not stop it."""
        ...

    def transact_blocking(self, work: Callable[[Transaction], T], *, essential: bool = False) -> T:
        """Do the same for a thread without an event loop."""
        ...


class EventLog(Protocol):
    """The events of the commit in progress: redacted, chained and sealed by the journal, inserted by the engine.

    An engine calls ``begin`` once it holds the lock on the head, and inserts ``events`` as they are. It calls all
    methods in the one thread that writes.
    """

    events: list[Event]

    def resume(self, reader: Reader) -> None:
        """Look how much an earlier process left unsealed."""

    def begin(self, head: Head, now_ms: int) -> None:
        """Start a commit whose first event follows ``head``, and forget the events of the one before."""

    def append(self, new: NewEvent) -> Event: ...

    def undo(self, length: int) -> None:
        """Drop the events after the first ``length`` of this commit."""

    def seal(self, transaction: Transaction, *, now: bool) -> None:
        """Put the events so far under a checkpoint, as the last work of a commit, if one is due or asked for."""

    def end(self, *, committed: bool) -> None:
        """Take note of what became of the commit."""

    def wait_seconds(self) -> float | None:
        """Return how long the writer may sleep before a checkpoint is due; None while nothing is unsealed."""


class Snapshot(Protocol):
    """One consistent state of the database, read row by row. Text comes as bytes, as it is stored."""

    def rows(self, sql: str, params: Params = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query. ``DatabaseDamaged`` is raised where the file cannot be read."""
        ...


class JournalSource(Reader, Protocol):
    """A reader whose journal can be verified."""

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...


class DiskFull(Unavailable):
    code = "journal.disk_full"
    hint = "free space on the state directory's disk; nothing runs unrecorded, so calls are refused until then"


class JournalBusy(Unavailable):
    code = "journal.busy"
    hint = "another process holds the database; if it is not Palyra, stop it"


class JournalReadOnly(Unavailable):
    code = "journal.read_only"
    hint = "make the state directory and the database in it writable for the user Palyra runs as"


class JournalMissing(Unavailable):
    code = "journal.cannot_open"
    hint = "check --state-dir; the database is made when the daemon starts for the first time"


class JournalClosed(Unavailable):
    code = "journal.closed"
    hint = "the daemon is stopping; ask again when it runs"


class JournalOverloaded(LimitExceeded):
    code = "journal.overloaded"
    hint = "the disk does not keep up; ask again later"


class DatabaseDamaged(Tampered):
    code = "journal.database_damaged"
    hint = "keep the files as they are; `palyra journal verify` names the first event that cannot be read"


class UnknownFormat(Unavailable):
    code = "journal.unknown_format"
    hint = "this database was written by another version of Palyra"


class NoSuchEvent(InvalidInput):
    code = "journal.no_such_event"
    hint = "give a sequence number or an event id, as `palyra journal tail` prints them"
