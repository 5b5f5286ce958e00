"""One caller's work for the writer, and what its caller waits on."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from palyra.errors import InternalError, PalyraError
from palyra.journal.checkpoint import Checkpoint
from palyra.store.event import Event
from palyra.store.sqlite.transaction import SqliteTransaction

Work = Callable[[SqliteTransaction], Any]
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


# What the writer's thread takes out of its queue for one commit: all that waits there, up to a bound.

# One group's units: enough for every caller the daemon admits, small enough that the last one's wait stays short.
MAX_GROUP_UNITS = 512


# None is the end: nothing comes after it.
Waiting = queue.SimpleQueue[Unit | None]


def gathered(waiting: Waiting, timeout: float | None) -> tuple[list[Unit], bool, bool]:
    """Waits for the first, and takes what is there by then; whether to go on after it; and whether to seal: because
    the time has come, or because this is the end."""
    units: list[Unit] = []
    try:
        unit = waiting.get(timeout=timeout)
    except queue.Empty:
        return units, True, True
    try:
        while unit is not None:
            units.append(unit)
            if len(units) == MAX_GROUP_UNITS:
                return units, True, False
            unit = waiting.get_nowait()
    except queue.Empty:
        return units, True, False
    return units, False, True


# What became of the units of one commit: each by itself while it is performed, and all of them together.


class Committed(msgspec.Struct, kw_only=True):
    """What one commit did, or failed to do."""

    outcomes: list[Outcome]
    events: list[Event]
    first_head: int = 0
    last_head: int = 0
    sealed: int = 0
    checkpoint: Checkpoint | None = None


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


def all_failed(units: Sequence[Unit], error: Exception) -> Committed:
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
