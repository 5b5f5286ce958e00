"""The journal in SQLite, and with it every table whose changes must commit together with their record."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from palyra.clock import Clock
from palyra.journal.checkpoint import Checkpoint
from palyra.journal.redaction import Redactor
from palyra.limits import CHECKPOINT_EVERY_EVENTS, CHECKPOINT_EVERY_SECONDS, JOURNAL_BALLAST_BYTES
from palyra.signing.dsse import Signer
from palyra.store.event import Event
from palyra.store.notify import MAX_WAITING_EVENTS, Subscription
from palyra.store.sqlite.disk_reserve import Ballast
from palyra.store.sqlite.reader import JournalReader
from palyra.store.sqlite.schema import open_writer
from palyra.store.sqlite.transaction import SqliteTransaction
from palyra.store.sqlite.unit_of_work import Unit
from palyra.store.sqlite.writer import Writer, WriterSettings

DATABASE_NAME = "palyra.db"
CHECKPOINT_NAME = "checkpoint.json"
BALLAST_NAME = "palyra.ballast"

T = TypeVar("T")


class SqliteStore:
    """Made with ``open``. Several processes may hold a store on one file; each extends the same chain."""

    def __init__(self, reader: JournalReader, writer: Writer, ballast: Ballast, redactor: Redactor) -> None:
        self._redactor = redactor
        self._reader = reader
        self._writer = writer
        self._ballast = ballast

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        clock: Clock,
        redactor: Redactor,
        signer: Signer,
        schema: Sequence[str] = (),
        checkpoint_events: int = CHECKPOINT_EVERY_EVENTS,
        checkpoint_seconds: float = CHECKPOINT_EVERY_SECONDS,
        ballast_bytes: int = JOURNAL_BALLAST_BYTES,
    ) -> Self:
        """``schema`` is the DDL of other concepts' tables, each statement harmless when run again."""
        connection = open_writer(path, schema)
        try:
            reader = JournalReader(path)
            ballast = Ballast(path.with_name(BALLAST_NAME), ballast_bytes, clock)
            ballast.secure()
            writer = Writer(
                connection,
                clock=clock,
                redactor=redactor,
                signer=signer,
                ballast=ballast,
                settings=WriterSettings(
                    checkpoint_path=path.with_name(CHECKPOINT_NAME),
                    checkpoint_events=checkpoint_events,
                    checkpoint_seconds=checkpoint_seconds,
                ),
            )
        except BaseException:
            connection.close()
            raise
        return cls(reader, writer, ballast, redactor)

    @staticmethod
    def open_reader(path: Path) -> JournalReader:
        """For commands that only read, whether or not a daemon runs."""
        return JournalReader(path)

    @property
    def reader(self) -> JournalReader:
        return self._reader

    @property
    def degraded(self) -> str | None:
        """Why new work is refused at the moment, or None."""
        if not self._ballast.held():
            return "the space held back for a full disk could not be taken"
        return "the disk is full" if self._writer.disk_full else None

    async def transact(self, work: Callable[[SqliteTransaction], T], *, essential: bool = False) -> T:
        """Runs ``work`` in the writer's thread and returns its result once it is on disk.

        An exception from ``work`` undoes it and comes back here; other callers in the same group are not touched.
        ``work`` may run a second time if the disk was full, and does nothing but use its transaction.
        ``essential`` is for the end of work that already ran: it may use the space held back for a full disk.
        A caller that is cancelled while waiting does not know whether its work was committed.
        """
        return await self._hand_over(work, essential=essential, sure=False)

    def submit(self, work: Callable[[SqliteTransaction], T], *, essential: bool = False) -> asyncio.Future[T]:
        """Hands ``work`` over at once, and returns what ``transact`` would wait for. It is done also when the one who
        waits is cancelled meanwhile."""
        return self._hand_over(work, essential=essential, sure=True)

    def _hand_over(self, work: Callable[[SqliteTransaction], T], *, essential: bool, sure: bool) -> asyncio.Future[T]:
        unit = Unit(work, asyncio.get_running_loop(), essential=essential, sure=sure)
        self._writer.submit(unit)
        return unit.future  # type: ignore[return-value]

    def transact_blocking(self, work: Callable[[SqliteTransaction], T], *, essential: bool = False) -> T:
        """The same for a thread without an event loop; never call it on one."""
        unit = Unit(work, None, essential=essential)
        self._writer.submit(unit)
        result: T = unit.future.result()
        return result

    def seal(self) -> Checkpoint | None:
        """Puts all events so far under a checkpoint and returns the newest; None if there is no event yet."""
        unit = Unit(_nothing, None, essential=True, seal=True)
        self._writer.submit(unit)
        unit.future.result()
        return self._reader.newest_checkpoint()

    def read(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """A short read on a connection of its own, of what is committed."""
        return self._reader.read(sql, params)

    def events_since(self, seq: int, limit: int, *, run: str = "", call: str = "", kind: str = "") -> list[Event]:
        return self._reader.events_since(seq, limit, run=run, call=call, kind=kind)

    def head(self) -> tuple[int, bytes]:
        return self._reader.head()

    def subscribe(self, capacity: int = MAX_WAITING_EVENTS) -> Subscription:
        """Events committed by this process from now on. Call it on the event loop that will read them."""
        subscription = Subscription(self._writer.remove, capacity)
        self._writer.add(subscription)
        return subscription

    def close(self) -> None:
        """Finishes waiting work, seals the rest, and lets go of the files. A second call does nothing."""
        self._writer.close()
        self._reader.close()


def _nothing(_transaction: SqliteTransaction) -> None:
    """The work of a unit that only seals."""
