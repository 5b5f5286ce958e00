"""The one thread that writes: it takes all waiting units of work, commits them together, then tells everyone at once.

The first unit to arrive does not wait for company. While its commit is on the way to the disk the next ones gather,
so groups grow with the load and vanish without it.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from palyra.clock import Clock
from palyra.errors import InternalError, PalyraError
from palyra.journal.ballast import Ballast
from palyra.journal.checkpoint import Checkpoint
from palyra.journal.event import Event
from palyra.journal.event_ids import EventIds
from palyra.journal.redact import Redactor
from palyra.journal.sealing import keep_beside, seal, sealed_through
from palyra.journal.sqlite_faults import DiskFull, JournalClosed, JournalOverloaded, fault_of
from palyra.journal.subscription import Subscription
from palyra.journal.transaction import Group, Transaction, read_head
from palyra.signing.dsse import Signer

# One group's units: enough for every caller the daemon admits, small enough that the last one's wait stays short.
MAX_GROUP_UNITS = 512
# Beyond this the disk is not keeping up, and a caller is better told than queued.
MAX_WAITING_UNITS = 8192

Work = Callable[[Transaction], Any]
Outcome = tuple["Unit", Any, BaseException | None]


class Wait:
    """What a thread that blocks waits on: a lock that is let go when there is a result. Nobody cancels it."""

    __slots__ = ("_error", "_finished", "_result", "_turn")

    def __init__(self) -> None:
        self._finished = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._turn = threading.Lock()
        self._turn.acquire()

    def done(self) -> bool:
        return self._finished

    def cancelled(self) -> bool:
        return False

    def set_result(self, result: Any) -> None:
        self._result, self._finished = result, True
        self._turn.release()

    def set_exception(self, error: BaseException) -> None:
        self._error, self._finished = error, True
        self._turn.release()

    def result(self) -> Any:
        with self._turn:
            if self._error is not None:
                raise self._error
            return self._result


class Unit:
    """One caller's work and the future it waits on; ``loop`` is None for a caller that blocks its thread. What is
    ``sure`` is done also when nobody waits for it any more."""

    __slots__ = ("essential", "future", "loop", "seal", "sure", "work")

    def __init__(
        self,
        work: Work,
        loop: asyncio.AbstractEventLoop | None,
        *,
        essential: bool = False,
        seal: bool = False,
        sure: bool = False,
    ) -> None:
        self.work = work
        self.essential = essential
        self.seal = seal
        self.sure = sure
        self.loop = loop
        self.future: asyncio.Future[Any] | Wait = Wait() if loop is None else loop.create_future()


class WriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    checkpoint_path: Path
    checkpoint_events: int
    checkpoint_seconds: float


class Committed(msgspec.Struct, kw_only=True):
    """What one commit did, or failed to do."""

    outcomes: list[Outcome]
    events: list[Event]
    first_head: int = 0
    last_head: int = 0
    sealed: int = 0
    checkpoint: Checkpoint | None = None


class Writer:
    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        clock: Clock,
        redactor: Redactor,
        signer: Signer,
        ballast: Ballast,
        settings: WriterSettings,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._redactor = redactor
        self._signer = signer
        self._ids = EventIds()
        self._ballast = ballast
        # Whether the last group met a full disk: for readiness, read by other threads.
        self.disk_full = False
        self._settings = settings
        self._queue: queue.SimpleQueue[Unit | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._subscriptions: tuple[Subscription, ...] = ()
        self._published_head = read_head(connection)[0]
        # Up to here everything is sealed: at least, for another process may have sealed more.
        self._sealed = sealed_through(connection)
        self._seal_at: float | None = None
        self._note_unsealed(self._published_head - self._sealed)
        self._thread = threading.Thread(target=self._run, name="palyra-journal-writer", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a unit of work cannot wait for another one")
        with self._gate:
            if self._closed:
                raise JournalClosed("the journal is closed")
            if self._queue.qsize() >= MAX_WAITING_UNITS:
                raise JournalOverloaded(f"{MAX_WAITING_UNITS} units of work already wait for the journal")
            self._queue.put(unit)

    def close(self) -> None:
        """Commits what waits, seals what is unsealed, and ends the thread."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def add(self, subscription: Subscription) -> None:
        with self._gate:
            self._subscriptions = (*self._subscriptions, subscription)

    def remove(self, subscription: Subscription) -> None:
        with self._gate:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

    def _run(self) -> None:
        running = True
        while running:
            units, running = self._gather()
            # Nothing gathered means that the time to seal has come; at the end there is a last seal.
            seal_now = not units or not running
            live = [unit for unit in units if unit.sure or not unit.future.cancelled()]
            if live or seal_now:
                self._commit(live, seal_now=seal_now)
        self._connection.close()

    def _gather(self) -> tuple[list[Unit], bool]:
        """All that waits, up to a bound; nothing if the time to seal came first. False means: this is the end."""
        timeout = None if self._seal_at is None else max(0.0, self._seal_at - self._clock.monotonic())
        units: list[Unit] = []
        try:
            unit = self._queue.get(timeout=timeout)
            while unit is not None:
                units.append(unit)
                if len(units) == MAX_GROUP_UNITS:
                    return units, True
                unit = self._queue.get_nowait()
        except queue.Empty:
            return units, True
        return units, False

    def _commit(self, units: list[Unit], *, seal_now: bool) -> None:
        """Every unit gets an outcome, whatever happens."""
        refused: list[Outcome] = []
        if not all(unit.essential for unit in units) and not self._ballast.secure():
            refused = [
                (unit, None, DiskFull("the disk is too full to record new work"))
                for unit in units
                if not unit.essential
            ]
            units = [unit for unit in units if unit.essential]
        try:
            group = self._attempt(units, seal_now=seal_now)
            self.disk_full = bool(refused)
        except DiskFull as fault:
            self.disk_full = True
            group = self._attempt_essential(units, fault)
        except Exception as error:
            group = _all_failed(units, error)
        self._after(group)
        self._tell([*refused, *group.outcomes], group)
        if group.checkpoint is not None:
            keep_beside(self._settings.checkpoint_path, group.checkpoint)

    def _attempt_essential(self, units: list[Unit], fault: DiskFull) -> Committed:
        """The end of work that already ran is recorded with the space held back for it."""
        essential = [unit for unit in units if unit.essential]
        if not essential or not self._ballast.held():
            return _all_failed(units, fault)
        self._ballast.release()
        try:
            group = self._attempt(essential, seal_now=False)
        except Exception as error:
            group = _all_failed(essential, error)
        group.outcomes += _all_failed([unit for unit in units if not unit.essential], fault).outcomes
        return group

    def _attempt(self, units: Sequence[Unit], *, seal_now: bool) -> Committed:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                group = self._perform(units, seal_now=seal_now)
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
        return group

    def _perform(self, units: Sequence[Unit], *, seal_now: bool) -> Committed:
        connection = self._connection
        group = Group(connection, self._redactor, self._ids, self._clock.now_ms())
        group.alone = len(units) == 1
        first_head = group.seq
        outcomes = [_perform_unit(unit, group) for unit in units]
        group.flush()
        sealed, checkpoint = self._sealed, None
        due = self._seal_at is not None and self._clock.monotonic() >= self._seal_at
        due = due or seal_now or any(unit.seal for unit in units)
        if due or group.seq - sealed >= self._settings.checkpoint_events:
            sealed = sealed_through(connection)
            if group.seq > sealed and (due or group.seq - sealed >= self._settings.checkpoint_events):
                checkpoint = seal(connection, time_ms=group.now_ms, signer=self._signer)
                sealed = checkpoint.last_seq
        return Committed(
            outcomes=outcomes,
            events=group.events,
            first_head=first_head,
            last_head=group.seq,
            sealed=sealed,
            checkpoint=checkpoint,
        )

    def _after(self, group: Committed) -> None:
        if group.last_head:
            self._sealed = group.sealed
            self._note_unsealed(group.last_head - group.sealed)
        elif self._seal_at is not None:
            # A failed group leaves what was unsealed as it was; ask again after the usual time, not at once.
            self._seal_at = self._clock.monotonic() + self._settings.checkpoint_seconds

    def _note_unsealed(self, unsealed: int) -> None:
        if unsealed <= 0:
            self._seal_at = None
        elif self._seal_at is None:
            self._seal_at = self._clock.monotonic() + self._settings.checkpoint_seconds

    def _tell(self, outcomes: Sequence[Outcome], group: Committed) -> None:
        """One wake-up per event loop and commit, however many callers and readers it has there."""
        waiting: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
        for outcome in outcomes:
            loop = outcome[0].loop
            if loop is None:
                _resolve([outcome])
            else:
                waiting.setdefault(loop, []).append(outcome)
        readers: dict[asyncio.AbstractEventLoop, list[Subscription]] = {}
        others_wrote = group.first_head > self._published_head
        if group.events:
            for subscription in self._subscriptions:
                readers.setdefault(subscription.loop, []).append(subscription)
            self._published_head = group.last_head
        for loop in {**waiting, **readers}:
            try:
                loop.call_soon_threadsafe(
                    _deliver, waiting.get(loop, ()), readers.get(loop, ()), group.events, others_wrote
                )
            except RuntimeError:
                # The loop was closed; nobody is left on it to tell.
                continue


def _perform_unit(unit: Unit, group: Group) -> Outcome:
    transaction = Transaction(group)
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


def _all_failed(units: Sequence[Unit], error: Exception) -> Committed:
    """Each caller gets an exception of its own: one shared by many tasks would collect all their tracebacks."""
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
    return Committed(outcomes=outcomes, events=[])


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
