"""Reserves what a call may use and starts it: budget, approval, call and journal change in one transaction."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from palyra.errors import LimitExceeded
from palyra.ids import RunId
from palyra.pipeline.authorize import AuthorizedCall
from palyra.pipeline.domain.approval import Approval, ApprovalBinding, BoundFile, build_approval_error
from palyra.pipeline.domain.budget import BudgetKind, name_amounts
from palyra.pipeline.domain.call import CallRecord, CallState, build_call_event, render_decision
from palyra.pipeline.store import approval_tables, run_tables
from palyra.pipeline.store.argument_tables import put_arguments
from palyra.pipeline.store.call_tables import find_call, put_call
from palyra.policy.request import policy_request_to_json
from palyra.store.event import NewEvent
from palyra.store.port import Transaction

# Calls that name no run share one of their principal for this long.
DEFAULT_RUN_SECONDS: Final = 3_600.0
# Refused and denied calls of one principal that are recorded in this time: more than any honest client makes.
MAX_REFUSED_CALLS: Final = 600
REFUSALS_COUNTED_SECONDS: Final = 60.0
# Principals whose run is remembered: an agent cannot make itself another one.
MAX_DEFAULT_RUNS: Final = 4_096


class RefusedTooOften(LimitExceeded):
    code = "call.refused_too_often"
    hint = "the journal says why the calls before were refused: change what is called, and go on in a minute"


class DefaultRuns:
    """The run of each principal for calls that name none. ``now`` is a monotonic clock.

    All tokens of a principal share it: who omits the run gets no new budget.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._runs: OrderedDict[str, tuple[RunId, float]] = OrderedDict()

    def run_of(self, principal: str) -> RunId:
        now = self._now()
        known = self._runs.pop(principal, None)
        if known is None or now - known[1] >= DEFAULT_RUN_SECONDS:
            known = (RunId.new(), now)
        self._runs[principal] = known
        if len(self._runs) > MAX_DEFAULT_RUNS:
            self._runs.popitem(last=False)
        return known[0]


class RefusedCalls:
    """The refused and denied calls of each principal in the present minute. ``now`` is a monotonic clock.

    Each is on record, so one that makes them without end would fill the disk.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = now()
        self._counts: Counter[str] = Counter()

    def require_few(self, principal: str) -> None:
        """Refuse a call, without a record, of a principal with too many refused ones. It may call again in a minute."""
        if self._now() - self._since >= REFUSALS_COUNTED_SECONDS:
            self._since = self._now()
            self._counts.clear()
        if self._counts[principal] >= MAX_REFUSED_CALLS:
            raise RefusedTooOften(f"{self._counts[principal]} calls of {principal} were refused within a minute")

    def note(self, ended: CallRecord, *, operators_own: bool) -> None:
        if ended.state in (CallState.REFUSED, CallState.DENIED) and not operators_own:
            self._counts[ended.principal] += 1


class StartedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose start is on disk.

    ``approved`` means that a person saw and approved exactly these arguments. An approval of a pattern of calls, or for
    a while, covers the tool. It covers no secret and no host in particular. ``bound`` are the files it is bound to.
    """

    record: CallRecord
    granted: dict[BudgetKind, int]
    approved: bool = False
    bound: tuple[BoundFile, ...] = ()


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that has not started, with the request for its approval: still pending, or decided against.

    ``denied_before`` means that a person denied the same request a short time ago, so nobody is asked.
    """

    record: CallRecord
    approval: Approval
    denied_before: bool = False

    def answer(self) -> CallRecord:
        """Return the record for a caller whose request is still pending."""
        return msgspec.structs.replace(self.record, error=build_approval_error(self.approval).as_dict())


def record_request(tx: Transaction, authorized: AuthorizedCall) -> None:
    """Append the first entries of a call: one that it was requested, and a decision for each question to policy.

    A call that comes back after its approval has them already. One that other policies judged is decided again.
    """
    record = authorized.record
    recorded = find_call(tx, record.call_id)
    if recorded is not None:
        before = recorded.decision
        if before is None or before["bundle_digest"] != authorized.decision["bundle_digest"]:
            tx.append_all(build_decision_events(authorized))
        return
    run_tables.ensure_run(
        tx, record.run_id, record.principal, record.actor, authorized.run_budget, most=authorized.runs_per_hour
    )
    put_arguments(tx, authorized.sealed)
    tx.append_all(build_request_events(authorized))


def start_call(tx: Transaction, authorized: AuthorizedCall, *, already_recorded: bool = False) -> StartedCall:
    """Reserve and start a call that policy allowed. All its entries come last, so that they are written together."""
    record = authorized.record
    if already_recorded:
        record_request(tx, authorized)
    accounts = run_tables.ensure_run(
        tx, record.run_id, record.principal, record.actor, authorized.run_budget, most=authorized.runs_per_hour
    )
    granted = run_tables.reserve_budget(tx, record.run_id, authorized.reserve, accounts)
    started = msgspec.structs.replace(record, state=CallState.RUNNING, started_ms=tx.now_ms)
    put_call(tx, started, instance=authorized.instance, reserved=granted)
    put_arguments(tx, authorized.sealed)
    events = [] if already_recorded else [*build_request_events(authorized)]
    tx.append_all([*events, build_start_event(authorized, started, granted)])
    return StartedCall(record=started, granted=granted)


def start_approved_or_wait(
    tx: Transaction, authorized: AuthorizedCall, request: Approval, *, denied_again_ms: int = 0
) -> StartedCall | PendingCall:
    """Start a call under an approval that covers it, or leave the request for one.

    A request that a person denied less than ``denied_again_ms`` ago is not made again.
    """
    cover = approval_tables.find_cover(tx, request.binding, authorized.arguments, authorized.record.session)
    pending = None if cover else approval_tables.find_pending(tx, request)
    record_request(tx, authorized)
    if cover is not None:
        return _start_approved(tx, authorized, cover, request.binding)
    record = authorized.record
    denial = approval_tables.find_denial(tx, request.binding, tx.now_ms - denied_again_ms) if denied_again_ms else None
    if pending is None and denial is not None:
        pending = denial
    elif pending is None:
        approval_tables.request_approval(tx, request, actor=record.actor, run=record.run_id, call=record.call_id)
        pending = request
    record = msgspec.structs.replace(record, state=CallState.NEEDS_APPROVAL, approval_id=pending.id)
    put_call(tx, record, instance="", reserved={})
    return PendingCall(record=record, approval=pending, denied_before=pending is denial)


def _start_approved(
    tx: Transaction, authorized: AuthorizedCall, approval: Approval, binding: ApprovalBinding
) -> StartedCall:
    record = authorized.record
    accounts = run_tables.ensure_run(
        tx, record.run_id, record.principal, record.actor, authorized.run_budget, most=authorized.runs_per_hour
    )
    granted = run_tables.reserve_budget(tx, record.run_id, authorized.reserve, accounts)
    approval_tables.consume(tx, approval, actor=record.actor, run=record.run_id, call=record.call_id)
    started = msgspec.structs.replace(record, state=CallState.RUNNING, started_ms=tx.now_ms, approval_id=approval.id)
    put_call(tx, started, instance=authorized.instance, reserved=granted)
    tx.append(build_start_event(authorized, started, granted))
    exact = approval.scope is not None and approval.scope.exact
    bound = binding.files if exact else binding.programs
    return StartedCall(record=started, granted=granted, approved=exact, bound=bound)


def build_request_events(authorized: AuthorizedCall) -> Iterator[NewEvent]:
    record = authorized.record
    yield build_call_event(
        record,
        "call.requested",
        tool=record.tool,
        argument_digest=authorized.arguments.digest,
        arguments=authorized.arguments.value,
        channel=record.channel,
        session=record.session,
        device=authorized.context.device,
        **({} if authorized.sealed is None else authorized.sealed.for_journal()),
    )
    yield from build_decision_events(authorized)


def build_decision_events(authorized: AuthorizedCall) -> Iterator[NewEvent]:
    record = authorized.record
    for decision, question in authorized.decided:
        request = policy_request_to_json(question)
        yield build_call_event(
            record, "call.decided", **render_decision(decision), tool=record.tool, policy_request=request
        )


def build_start_event(authorized: AuthorizedCall, started: CallRecord, granted: Mapping[BudgetKind, int]) -> NewEvent:
    return build_call_event(
        started,
        "call.started",
        tool=started.tool,
        executor=authorized.executor,
        approval_id=started.approval_id,
        reserved=name_amounts(granted),
    )
