"""Settles calls: records how each ended, with its budget and its entry in the journal, in one transaction."""

from collections.abc import Awaitable, Collection

import msgspec

from palyra.clock import Clock, rfc3339
from palyra.errors import InvalidInput, PalyraError
from palyra.pipeline.attest import AttestedCall
from palyra.pipeline.authorize import AuthorizedCall
from palyra.pipeline.domain.approval import DeniedBefore
from palyra.pipeline.domain.budget import BudgetKind, name_amounts
from palyra.pipeline.domain.call import CallDenied, CallRecord, CallState, UnknownCall, UnknownRun, build_call_event
from palyra.pipeline.execute import shield_until_done
from palyra.pipeline.reserve import PendingCall, StartedCall, record_request
from palyra.pipeline.store import run_tables
from palyra.pipeline.store.argument_tables import SealedArguments, put_arguments
from palyra.pipeline.store.call_tables import end_call, find_unfinished, keep_result, put_call
from palyra.store.port import Store, Transaction


class CallSettlement:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def settle(self, started: StartedCall, attesting: Awaitable[AttestedCall]) -> CallRecord:
        """Record the end of a call that ran, once it is attested. This may use the space held back for a full disk."""
        return await shield_until_done(self._settle(started, attesting))

    async def _settle(self, started: StartedCall, attesting: Awaitable[AttestedCall]) -> CallRecord:
        attested = await attesting
        return await self._store.submit(lambda tx: record_end(tx, attested, started.granted), essential=True)

    async def deny_unapproved(self, pending: PendingCall) -> CallRecord:
        """Record a call whose request for approval was denied, expired or withdrawn."""
        approval = pending.approval
        why = f": {approval.reason}" if approval.reason else ""
        error: PalyraError = CallDenied(
            f"the request for approval was {approval.state.value}{why}",
            hint="change the call, or ask again",
            approval_id=approval.id,
        )
        if pending.denied_before:
            at = rfc3339(approval.decided_ms or 0)
            message = f"a person denied exactly this request at {at}, and is not asked again so soon{why}"
            error = DeniedBefore(message, approval_id=approval.id)
        denied = msgspec.structs.replace(
            pending.record, state=CallState.DENIED, error=error.as_dict(), ended_ms=self._clock.now_ms()
        )
        return await self._store.transact(lambda tx: record_refusal(tx, denied))

    async def refuse(
        self,
        record: CallRecord,
        error: PalyraError,
        authorized: AuthorizedCall | None = None,
        sealed: SealedArguments | None = None,
    ) -> CallRecord:
        """Record a call that did not start, with its arguments if they were read.

        ``authorized`` is given if its request and decision belong in the journal. A refusal because of too many calls
        omits it, so that a busy daemon writes one entry.
        """
        refused = msgspec.structs.replace(
            record,
            state=CallState.REFUSED,
            error=error.as_dict(),
            ended_ms=self._clock.now_ms(),
            decision=None if authorized is None else authorized.decision,
        )

        def work(tx: Transaction) -> CallRecord:
            if authorized is not None and not isinstance(error, UnknownRun | run_tables.TooManyRuns):
                record_request(tx, authorized)
            return record_refusal(tx, refused, sealed)

        return await self._store.transact(work)

    async def deny(self, authorized: AuthorizedCall) -> CallRecord:
        """Record a call that policy denies, or whose obligations cannot be enforced."""
        assert authorized.denial is not None
        denied = msgspec.structs.replace(
            authorized.record,
            state=CallState.DENIED if isinstance(authorized.denial, CallDenied) else CallState.REFUSED,
            error=authorized.denial.as_dict(),
            ended_ms=self._clock.now_ms(),
        )
        try:
            return await self._store.transact(lambda tx: record_denial(tx, authorized, denied))
        except (InvalidInput, run_tables.TooManyRuns) as misuse:
            return await self.refuse(authorized.record, misuse, sealed=authorized.sealed)


def record_end(tx: Transaction, attested: AttestedCall, granted: dict[BudgetKind, int]) -> CallRecord:
    """Record the end of a call that this instance still runs. ``granted`` is what it had reserved."""
    record = attested.record
    if not end_call(tx, record):
        raise UnknownCall(f"call {record.call_id} is not running", call_id=record.call_id)
    keep_result(tx, record, attested.result_bytes, attested.output_digest)
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


def record_refusal(tx: Transaction, record: CallRecord, sealed: SealedArguments | None = None) -> CallRecord:
    """Keep a call that did not start, with its error. Nothing is written into the run of another principal."""
    if run_tables.belongs_to_another(tx, record.run_id, record.principal):
        record = msgspec.structs.replace(record, run_id="")
    put_arguments(tx, sealed)
    entry = build_call_event(
        record,
        "call.refused",
        tool=record.tool,
        argument_digest=record.argument_digest,
        error=record.error,
        **({} if sealed is None else sealed.for_journal()),
    )
    tx.append(entry)
    put_call(tx, record, instance="", reserved={})
    return record


def record_denial(tx: Transaction, authorized: AuthorizedCall, denied: CallRecord) -> CallRecord:
    record_request(tx, authorized)
    put_call(tx, denied, instance="", reserved={})
    return denied


def release_abandoned(tx: Transaction, live_instances: Collection[str], *, actor: str) -> list[CallRecord]:
    """End the calls that dead processes left running, and release what they had reserved."""
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
