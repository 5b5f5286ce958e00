"""What the journal says of a call: that it was requested, decided, started and finished, or refused or cut off."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from palyra.journal.event import NewEvent, Redacted
from palyra.journal.forms import Hole
from palyra.policy.request import ARGUMENT_BYTES, RUN, policy_request_in_journal
from palyra.tools.asking import Asked
from palyra.tools.budget import BudgetKind
from palyra.tools.call import decision_view
from palyra.tools.ending import Booked
from palyra.tools.ports import CallStore
from palyra.tools.record import CallRecord
from palyra.tools.standing import JournalForms, Standing, asked_with

NAMES = {kind: kind.value for kind in BudgetKind}
_ARGUMENTS, _ARGUMENT_DIGEST = "arguments", "argument_digest"
_HOLES = {RUN: Hole(RUN), ARGUMENT_BYTES: Hole(ARGUMENT_BYTES)}
_encode = msgspec.json.Encoder().encode


def entries_asked(asked: Asked) -> Iterator[NewEvent]:
    """The first entries of every call that was understood: requested, and each question decided."""
    yield _entry_requested(asked)
    yield from entries_decided(asked)


def entries_decided(asked: Asked) -> Iterator[NewEvent]:
    record = asked.record
    for decision, question in asked.answered():
        yield call_entry(record, "call.decided", **_decided(asked, decision_view(decision), question))


def entries_of_start(asked: Asked, started: CallRecord, granted: Mapping[BudgetKind, int]) -> list[NewEvent]:
    """Up to the call's start."""
    return [*entries_asked(asked), entry_started(asked, started, granted)]


def entries_ready(
    asked: Asked, started: CallRecord, granted: Mapping[BudgetKind, int], store: CallStore
) -> list[NewEvent]:
    """The same, ready to be written: for who has time before the transaction."""
    filled = None if asked.standing is None else _filled(asked.standing, asked, granted, store)
    return [store.ahead(each) for each in entries_of_start(asked, started, granted)] if filled is None else filled


def entry_started(asked: Asked, started: CallRecord, granted: Mapping[BudgetKind, int]) -> NewEvent:
    return call_entry(started, "call.started", **_started(asked, started.approval_id, granted))


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
        used={NAMES[kind]: amount for kind, amount in booked.used.items()},
    )


def call_entry(
    record: CallRecord, kind: str, *, by: str | None = None, ready: Redacted | None = None, **payload: Any
) -> NewEvent:
    """With its payload, or with one that is ready to be written."""
    return NewEvent(
        kind=kind,
        actor=by or record.actor,
        principal=record.principal,
        run=record.run_id,
        call=record.call_id,
        payload=payload,
        redacted=ready,
    )


def _entry_requested(asked: Asked) -> NewEvent:
    arguments = asked.arguments
    return call_entry(asked.record, "call.requested", **_requested(asked, arguments.digest, arguments.value))


def _requested(asked: Asked, argument_digest: Any, arguments: Any) -> dict[str, Any]:
    record = asked.record
    return {
        "tool": record.tool,
        _ARGUMENT_DIGEST: argument_digest,
        _ARGUMENTS: arguments,
        "channel": record.channel,
        "session": record.session,
        "device": asked.context.device,
    }


def _decided(asked: Asked, shown: dict[str, Any], question: Any) -> dict[str, Any]:
    return {**shown, "tool": asked.record.tool, "policy_request": policy_request_in_journal(question)}


def _started(asked: Asked, approval_id: str | None, granted: Mapping[BudgetKind, int]) -> dict[str, Any]:
    return {
        "tool": asked.record.tool,
        "executor": asked.executor,
        "approval_id": approval_id,
        "reserved": {NAMES[kind]: amount for kind, amount in granted.items()},
    }


def _filled(
    standing: Standing, asked: Asked, granted: Mapping[BudgetKind, int], store: CallStore
) -> list[NewEvent] | None:
    """The entries of a call of which nearly all was said before; None where something has to be taken out of them."""
    forms = standing.forms
    if forms is None:
        forms = standing.forms = _forms(standing, asked, store)
    if forms.started is None or forms.started_with != granted:
        forms.started, forms.started_with = store.form(_started(asked, None, granted)), granted
    arguments, record = asked.arguments, asked.record
    values = {
        RUN: _encode(record.run_id),
        ARGUMENT_BYTES: _encode(len(arguments.canonical)),
        _ARGUMENT_DIGEST: _encode(arguments.digest),
        _ARGUMENTS: arguments.canonical,
    }
    entries: list[NewEvent] = []
    requested = None
    if forms.requested is not None and store.fit(arguments.value):
        requested = store.filled(forms.requested, values)
    if requested is None:
        # Arguments may hold anything.
        entries.append(store.ahead(_entry_requested(asked)))
    else:
        entries.append(call_entry(record, "call.requested", ready=requested))
    for kind, form in (*(("call.decided", form) for form in forms.decided), ("call.started", forms.started)):
        ready = None if form is None else store.filled(form, values)
        if ready is None:
            return None
        entries.append(call_entry(record, kind, ready=ready))
    return entries


def _forms(standing: Standing, asked: Asked, store: CallStore) -> JournalForms:
    requested = store.form(_requested(asked, Hole(_ARGUMENT_DIGEST), Hole(_ARGUMENTS)))
    decided = (
        store.form(_decided(asked, decision_view(decision), asked_with(question, _HOLES)))
        for decision, question in standing.answered
    )
    return JournalForms(requested, tuple(decided))
