"""Writer of the store: one thread commits all waiting units of work together, then notifies their callers.

The first unit to arrive does not wait for others. While its commit is on its way to the disk the next ones gather, so
groups grow with the load. Subscriptions of this process receive the committed events.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from palyra.clock import Clock
from palyra.errors import InternalError, LimitExceeded, PalyraError
from palyra.store.event import Event
from palyra.store.port import DiskFull, EventLog, JournalClosed, JournalOverloaded, Reader
from palyra.store.sqlite.connection import Group, SqliteTransaction, begin, fault_of, read_head

# Enough for every caller the daemon admits, small enough that the last one's wait stays short.
MAX_BATCH_UNITS = 512
# Events that one slow reader may hold in memory.
MAX_WAITING_EVENTS = 1024

Outcome = tuple["Unit", Any, BaseException | None]
# None is the end: nothing comes after it.
Queue = queue.SimpleQueue["Unit | None"]


class EventsLost(LimitExceeded):
    code = "journal.subscriber_lagged"
    hint = "read the events since the last one you saw from the journal, then go on listening"


class Unit:
    """One caller's work and the future of its result; ``loop`` is None for a caller that blocks its thread.

    A unit with ``keep`` runs also after its caller was cancelled.
    """

    __slots__ = ("essential", "future", "keep", "loop", "seal", "work")

    def __init__(
        self,
        work: Callable[[Any], Any],
        loop: asyncio.AbstractEventLoop | None,
        *,
        essential: bool = False,
        seal: bool = False,
        keep: bool = False,
    ) -> None:
        self.work = work
        self.essential = essential
        self.seal = seal
        self.keep = keep
        self.loop = loop
        self.future: asyncio.Future[Any] | concurrent.futures.Future[Any] = (
            concurrent.futures.Future() if loop is None else loop.create_future()
        )


class Commit(msgspec.Struct, kw_only=True):
    outcomes: list[Outcome]
    events: Sequence[Event] = ()
    first_seq: int = 0
    last_seq: int = 0


def take_batch(waiting: Queue, timeout: float | None) -> tuple[list[Unit], bool, bool]:
    """Wait for a unit and take all that wait by then; return also whether to go on, and whether to seal.

    The batch seals when the timeout passed without a unit, and at the end.
    """
    units: list[Unit] = []
    try:
        unit = waiting.get(timeout=timeout)
    except queue.Empty:
        return units, True, True
    try:
        while unit is not None:
            units.append(unit)
            if len(units) == MAX_BATCH_UNITS:
                return units, True, False
            unit = waiting.get_nowait()
    except queue.Empty:
        return units, True, False
    return units, False, True


def fail_all(units: Sequence[Unit], error: Exception) -> list[Outcome]:
    """Give each caller an exception of its own: one shared by many tasks would collect all their tracebacks."""
    cause: BaseException | None = error
    if isinstance(error, PalyraError):
        fault, cause = error, error.__cause__
    else:
        fault = InternalError(f"the journal's writer failed ({type(error).__name__})")
    outcomes: list[Outcome] = []
    for unit in units:
        own = type(fault)(fault.message, hint=fault.hint, **fault.details)
        own.__cause__ = cause
        outcomes.append((unit, None, own))
    return outcomes


class Subscription:
    """An async iterator of committed events. It belongs to the event loop it was made on.

    It may miss events: ``EventsLost`` is raised once after events were dropped, or after another process committed
    some. The reader then reads the table, and skips the events that it read there.
    """

    def __init__(self, on_close: Callable[["Subscription"], None], capacity: int = MAX_WAITING_EVENTS) -> None:
        self.loop = asyncio.get_running_loop()
        self.lost = False
        self._on_close = on_close
        self._capacity = capacity
        self._waiting: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    def deliver(self, events: Sequence[Event], *, others_wrote: bool) -> None:
        """Queue events for the reader. Called on the subscription's loop."""
        if others_wrote or len(self._waiting) + len(events) > self._capacity:
            self.lost = True
            self._waiting.clear()
        if not self.lost:
            self._waiting.extend(events)
        self._arrived.set()

    def close(self) -> None:
        self._closed = True
        self._on_close(self)
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self.lost:
                self.lost = False
                raise EventsLost("this reader fell behind the journal")
            if self._waiting:
                return self._waiting.popleft()
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Notifier:
    """Notifies the callers of a commit and the subscriptions of this process, from the writer's thread."""

    def __init__(self, head: int) -> None:
        """``head`` is the number of the newest event before the first commit."""
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._published_head = head

    def add(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

    def notify(self, commit: Commit) -> None:
        """Wake each event loop once, however many callers and readers it has."""
        events = commit.events
        others_wrote = commit.first_seq > self._published_head
        if events:
            self._published_head = commit.last_seq
        waiting: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
        for outcome in commit.outcomes:
            loop = outcome[0].loop
            if loop is None:
                _resolve([outcome])
            else:
                waiting.setdefault(loop, []).append(outcome)
        readers: dict[asyncio.AbstractEventLoop, list[Subscription]] = {}
        if events:
            for subscription in self._subscriptions:
                readers.setdefault(subscription.loop, []).append(subscription)
        for loop in {**waiting, **readers}:
            try:
                loop.call_soon_threadsafe(_deliver, waiting.get(loop, ()), readers.get(loop, ()), events, others_wrote)
            except RuntimeError:
                # The loop was closed: nobody waits on it.
                continue


def _deliver(
    outcomes: Sequence[Outcome], readers: Sequence[Subscription], events: Sequence[Event], others_wrote: bool
) -> None:
    for reader in readers:
        reader.deliver(events, others_wrote=others_wrote)
    _resolve(outcomes)


def _resolve(outcomes: Sequence[Outcome]) -> None:
    for unit, result, error in outcomes:
        future = unit.future
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


# Beyond this the disk does not keep up, and a caller is better refused than queued.
MAX_WAITING_UNITS = 8192
# Pause between attempts to get space on a full disk.
_RETRY_SECONDS = 1.0
_BYTES_PER_BLOCK = 512


class DiskReserve:
    """A preallocated file beside the database, so that work which already ran can be recorded on a full disk.

    All processes that write the database share it.
    """

    def __init__(self, path: Path, size: int, clock: Clock) -> None:
        self._path = str(path)
        self._size = size
        self._clock = clock
        self._next_attempt = 0.0

    def is_held(self) -> bool:
        try:
            status = os.stat(self._path)
        except OSError:
            return False
        return status.st_size >= self._size and status.st_blocks * _BYTES_PER_BLOCK >= self._size

    def secure(self) -> bool:
        """Return whether the space is held, after an attempt to take it."""
        if self.is_held():
            return True
        now = self._clock.monotonic()
        if now < self._next_attempt:
            return False
        self._next_attempt = now + _RETRY_SECONDS
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(descriptor, 0, self._size)
        except OSError:
            self.release()
            return False
        finally:
            os.close(descriptor)
        return True

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)


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


class Writer:
    def __init__(
        self, connection: sqlite3.Connection, *, clock: Clock, log: EventLog, reserve: DiskReserve, reader: Reader
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._log = log
        self._reserve = reserve
        # True if the disk was full for the last group. Other threads read it for readiness.
        self.disk_full = False
        self._queue: Queue = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Units in the queue, changed under the lock.
        self._waiting = 0
        self._closed = False
        self.notifier = Notifier(read_head(connection)[0])
        log.resume(reader)
        self._thread = threading.Thread(target=self._run, name="palyra-journal-writer", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a unit of work cannot wait for another one")
        with self._lock:
            if self._closed:
                raise JournalClosed("the journal is closed")
            if self._waiting >= MAX_WAITING_UNITS:
                raise JournalOverloaded(f"{MAX_WAITING_UNITS} units of work already wait for the journal")
            self._waiting += 1
            self._queue.put(unit)

    def close(self) -> None:
        """Commit what waits, seal what is unsealed, and end the thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        running = True
        while running:
            units, running, seal = take_batch(self._queue, self._log.wait_seconds())
            with self._lock:
                self._waiting -= len(units)
            live = [unit for unit in units if unit.keep or not unit.future.cancelled()]
            if live or seal:
                self._serve(live, seal=seal)
        self._connection.close()

    def _serve(self, units: list[Unit], *, seal: bool) -> None:
        """Commit the units and notify their callers. Every unit gets an outcome, whatever happens."""
        refused: list[Outcome] = []
        if not all(unit.essential for unit in units) and not self._reserve.secure():
            fault = DiskFull("the disk is too full to record new work")
            refused = fail_all([unit for unit in units if not unit.essential], fault)
            units = [unit for unit in units if unit.essential]
        try:
            commit = self._attempt(units, seal=seal)
            self.disk_full = bool(refused)
        except DiskFull as fault:
            self.disk_full = True
            commit = self._attempt_essential(units, fault)
        except Exception as error:
            commit = Commit(outcomes=fail_all(units, error))
        commit.outcomes += refused
        self.notifier.notify(commit)
        self._log.end(committed=bool(commit.last_seq))

    def _attempt_essential(self, units: list[Unit], fault: DiskFull) -> Commit:
        """Record the end of work that already ran with the space held back for it."""
        essential = [unit for unit in units if unit.essential]
        if not essential or not self._reserve.is_held():
            return Commit(outcomes=fail_all(units, fault))
        self._reserve.release()
        try:
            commit = self._attempt(essential, seal=False)
        except Exception as error:
            commit = Commit(outcomes=fail_all(essential, error))
        commit.outcomes += fail_all([unit for unit in units if not unit.essential], fault)
        return commit

    def _attempt(self, units: Sequence[Unit], *, seal: bool) -> Commit:
        connection = self._connection
        try:
            if connection.in_transaction:
                # An earlier rollback failed. If this one fails too, the next BEGIN raises the reason.
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            begin(connection)
            try:
                commit = self._perform(units, seal=seal)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            fault = fault_of(error)
            if fault is None:
                raise
            raise fault from error
        return commit

    def _perform(self, units: Sequence[Unit], *, seal: bool) -> Commit:
        group = Group(self._connection, self._log, self._clock.now_ms())
        outcomes = [perform_unit(unit, SqliteTransaction(group)) for unit in units]
        sealing = SqliteTransaction(group)
        self._log.seal(sealing, now=seal or any(unit.seal for unit in units))
        sealing.finish()
        group.flush()
        events = self._log.events
        last_seq = events[-1].seq if events else group.first_seq
        return Commit(outcomes=outcomes, events=events, first_seq=group.first_seq, last_seq=last_seq)
