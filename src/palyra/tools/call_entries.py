"""What the journal says of a call: that it was requested, decided, started and finished, or refused or cut off."""

from collections.abc import Iterator, Mapping
from typing import Any

from palyra.journal.event import NewEvent
from palyra.policy.request import policy_request_to_json
from palyra.tools.asking import Asked
from palyra.tools.budget import BudgetKind
from palyra.tools.call import decision_view
from palyra.tools.ending import Booked
from palyra.tools.record import CallRecord


def entries_asked(asked: Asked) -> Iterator[NewEvent]:
    """The first entries of every call that was understood: requested, and each question decided."""
    record = asked.record
    yield call_entry(
        record,
        "call.requested",
        tool=record.tool,
        argument_digest=asked.arguments.digest,
        arguments=asked.arguments.value,
        channel=record.channel,
        session=record.session,
        device=asked.context.device,
    )
    yield from entries_decided(asked)


def entries_decided(asked: Asked) -> Iterator[NewEvent]:
    record = asked.record
    for decision, question in asked.decided:
        request = policy_request_to_json(question)
        yield call_entry(record, "call.decided", **decision_view(decision), tool=record.tool, policy_request=request)


def entries_of_start(asked: Asked, started: CallRecord, granted: Mapping[BudgetKind, int]) -> list[NewEvent]:
    """Up to the call's start."""
    return [*entries_asked(asked), entry_started(asked, started, granted)]


def entry_started(asked: Asked, started: CallRecord, granted: Mapping[BudgetKind, int]) -> NewEvent:
    return call_entry(
        started,
        "call.started",
        tool=started.tool,
        executor=asked.executor,
        approval_id=started.approval_id,
        reserved=_by_name(granted),
    )


def entry_finished(record: CallRecord, booked: Booked) -> NewEvent:
    return call_entry(
        record,
        "call.finished",
        tool=record.tool,
        state=record.state.value,
        output_digest=booked.output_digest,
        execution_sha256=booked.execution_sha256,
        receipt=record.receipt,
        error=record.error,
        used=_by_name(booked.used),
    )


def call_entry(record: CallRecord, kind: str, *, by: str | None = None, **payload: Any) -> NewEvent:
    return NewEvent(
        kind=kind,
        actor=by or record.actor,
        principal=record.principal,
        run=record.run_id,
        call=record.call_id,
        payload=payload,
    )


def _by_name(amounts: Mapping[BudgetKind, int]) -> dict[str, int]:
    return {kind.value: amount for kind, amount in amounts.items()}
