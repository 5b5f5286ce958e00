"""Settles calls: books how each ended, with its budget and its entry in the journal, in one transaction."""

from collections.abc import Collection

import msgspec

from palyra.clock import Clock
from palyra.errors import InvalidInput, PalyraError
from palyra.pipeline.attest import Attested
from palyra.pipeline.authorize import Asked
from palyra.pipeline.domain.budget import BudgetKind, amounts_by_name
from palyra.pipeline.domain.call import CallDenied, CallRecord, CallState, UnknownCall, UnknownRun, call_entry
from palyra.pipeline.execute import to_the_end
from palyra.pipeline.reserve import Started, note_asked
from palyra.pipeline.store import run_tables
from palyra.pipeline.store.call_tables import calls_left_running, end_call, put_call
from palyra.store.port import Store, Transaction


class Settlement:
    """Puts the ends of calls on record, in a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def settle(self, started: Started, attested: Attested) -> CallRecord:
        """Books a call that ran. It may use the space held back for a full disk."""
        return await to_the_end(self._store.submit(lambda tx: finish(tx, attested, started.granted), essential=True))

    async def refuse(self, record: CallRecord, error: PalyraError, asked: Asked | None = None) -> CallRecord:
        """Books a call that did not start. ``asked`` is there if it was decided on."""
        refused = msgspec.structs.replace(
            record,
            state=CallState.REFUSED,
            error=error.as_dict(),
            ended_ms=self._clock.now_ms(),
            decision=None if asked is None else asked.decision,
        )

        def work(tx: Transaction) -> CallRecord:
            if asked is not None and not isinstance(error, UnknownRun):
                note_asked(tx, asked)
            return note_refused(tx, refused)

        return await self._store.transact(work)

    async def deny(self, asked: Asked) -> CallRecord:
        """Books a call that policy denies, or whose obligations cannot be enforced."""
        assert asked.denial is not None
        denied = msgspec.structs.replace(
            asked.record,
            state=CallState.DENIED if isinstance(asked.denial, CallDenied) else CallState.REFUSED,
            error=asked.denial.as_dict(),
            ended_ms=self._clock.now_ms(),
        )
        try:
            return await self._store.transact(lambda tx: note_denied(tx, asked, denied))
        except InvalidInput as misuse:
            return await self.refuse(asked.record, misuse)


def finish(tx: Transaction, attested: Attested, granted: dict[BudgetKind, int]) -> CallRecord:
    """Books the end of a call that is still this instance's to end; ``granted`` is what it had reserved."""
    record = attested.record
    if not end_call(tx, record):
        raise UnknownCall(f"call {record.call_id} is not running", call_id=record.call_id)
    run_tables.settle_budget(tx, record.run_id, granted, attested.used)
    tx.append(
        call_entry(
            record,
            "call.finished",
            tool=record.tool,
            state=record.state.value,
            output_digest=attested.output_digest,
            execution_sha256=attested.execution_sha256,
            receipt=record.receipt,
            error=record.error,
            used=amounts_by_name(attested.used),
        )
    )
    return record


def note_refused(tx: Transaction, record: CallRecord) -> CallRecord:
    """A call that never got as far as a decision, or found no budget: kept with its error. Nothing is written into a
    run that is somebody else's, whatever else was wrong with the call."""
    if run_tables.is_anothers(tx, record.run_id, record.principal):
        record = msgspec.structs.replace(record, run_id="")
    entry = call_entry(
        record, "call.refused", tool=record.tool, argument_digest=record.argument_digest, error=record.error
    )
    tx.append(entry)
    put_call(tx, record, instance="", reserved={})
    return record


def note_denied(tx: Transaction, asked: Asked, denied: CallRecord) -> CallRecord:
    note_asked(tx, asked)
    put_call(tx, denied, instance="", reserved={})
    return denied


def release_abandoned(tx: Transaction, live_instances: Collection[str], *, actor: str) -> list[CallRecord]:
    """Ends what dead processes left running, and gives back what they had reserved."""
    released = []
    for instance, amounts, running in calls_left_running(tx):
        if instance in live_instances:
            continue
        record = msgspec.structs.replace(
            running,
            state=CallState.ABANDONED,
            ended_ms=tx.now_ms,
            error={
                "code": "call.abandoned",
                "message": "the process that ran this call ended before the call did",
                "hint": "its effects may be partial; its budget was given back",
            },
        )
        run_tables.settle_budget(tx, record.run_id, amounts, {})
        entry = call_entry(
            record,
            "call.abandoned",
            by=actor,
            tool=record.tool,
            instance=instance,
            released=amounts_by_name(amounts),
        )
        tx.append(entry)
        put_call(tx, record, instance="", reserved={})
        released.append(record)
    return released
