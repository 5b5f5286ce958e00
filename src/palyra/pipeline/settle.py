"""Settles calls: books how each ended, with its budget and its entry in the journal, in one transaction."""

from collections.abc import Collection

import msgspec

from palyra.clock import Clock
from palyra.errors import InvalidInput, PalyraError
from palyra.pipeline.attest import AttestedCall
from palyra.pipeline.authorize import AuthorizedCall
from palyra.pipeline.domain.budget import BudgetKind, name_amounts
from palyra.pipeline.domain.call import CallDenied, CallRecord, CallState, UnknownCall, UnknownRun, build_call_event
from palyra.pipeline.execute import shield_until_done
from palyra.pipeline.reserve import StartedCall, record_request
from palyra.pipeline.store import run_tables
from palyra.pipeline.store.call_tables import end_call, find_unfinished, put_call
from palyra.store.port import Store, Transaction


class CallSettlement:
    """Puts the ends of calls on record, in a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def settle(self, started: StartedCall, attested: AttestedCall) -> CallRecord:
        """Books a call that ran. It may use the space held back for a full disk."""
        return await shield_until_done(
            self._store.submit(lambda tx: record_end(tx, attested, started.granted), essential=True)
        )

    async def refuse(self, record: CallRecord, error: PalyraError, asked: AuthorizedCall | None = None) -> CallRecord:
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
                record_request(tx, asked)
            return record_refusal(tx, refused)

        return await self._store.transact(work)

    async def deny(self, asked: AuthorizedCall) -> CallRecord:
        """Books a call that policy denies, or whose obligations cannot be enforced."""
        assert asked.denial is not None
        denied = msgspec.structs.replace(
            asked.record,
            state=CallState.DENIED if isinstance(asked.denial, CallDenied) else CallState.REFUSED,
            error=asked.denial.as_dict(),
            ended_ms=self._clock.now_ms(),
        )
        try:
            return await self._store.transact(lambda tx: record_denial(tx, asked, denied))
        except InvalidInput as misuse:
            return await self.refuse(asked.record, misuse)


def record_end(tx: Transaction, attested: AttestedCall, granted: dict[BudgetKind, int]) -> CallRecord:
    """Books the end of a call that is still this instance's to end; ``granted`` is what it had reserved."""
    record = attested.record
    if not end_call(tx, record):
        raise UnknownCall(f"call {record.call_id} is not running", call_id=record.call_id)
    run_tables.settle_budget(tx, record.run_id, granted, attested.used)
    tx.append(
        build_call_event(
            record,
            "call.finished",
            tool=record.tool,
            state=record.state.value,
            output_digest=attested.output_digest,
            execution_sha256=attested.execution_sha256,
            receipt=record.receipt,
            error=record.error,
            used=name_amounts(attested.used),
        )
    )
    return record


def record_refusal(tx: Transaction, record: CallRecord) -> CallRecord:
    """A call that never got as far as a decision, or found no budget: kept with its error. Nothing is written into a
    run that is somebody else's, whatever else was wrong with the call."""
    if run_tables.belongs_to_another(tx, record.run_id, record.principal):
        record = msgspec.structs.replace(record, run_id="")
    entry = build_call_event(
        record, "call.refused", tool=record.tool, argument_digest=record.argument_digest, error=record.error
    )
    tx.append(entry)
    put_call(tx, record, instance="", reserved={})
    return record


def record_denial(tx: Transaction, asked: AuthorizedCall, denied: CallRecord) -> CallRecord:
    record_request(tx, asked)
    put_call(tx, denied, instance="", reserved={})
    return denied


def release_abandoned(tx: Transaction, live_instances: Collection[str], *, actor: str) -> list[CallRecord]:
    """Ends what dead processes left running, and gives back what they had reserved."""
    released = []
    for instance, amounts, running in find_unfinished(tx):
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
        entry = build_call_event(
            record,
            "call.abandoned",
            by=actor,
            tool=record.tool,
            instance=instance,
            released=name_amounts(amounts),
        )
        tx.append(entry)
        put_call(tx, record, instance="", reserved={})
        released.append(record)
    return released
