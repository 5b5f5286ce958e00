"""What became of the units of one commit: each by itself while it is performed, and all of them together."""

from collections.abc import Sequence

import msgspec

from palyra.errors import InternalError, PalyraError
from palyra.journal.checkpoint import Checkpoint
from palyra.journal.event import Event
from palyra.journal.transaction import Transaction
from palyra.journal.unit import Outcome, Unit


class Committed(msgspec.Struct, kw_only=True):
    """What one commit did, or failed to do."""

    outcomes: list[Outcome]
    events: list[Event]
    first_head: int = 0
    last_head: int = 0
    sealed: int = 0
    checkpoint: Checkpoint | None = None


def perform_unit(unit: Unit, transaction: Transaction) -> Outcome:
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
