import itertools

import msgspec
import pytest

from fakes.fleet_peers import POLICY, a_lease, numbered
from palyra.fleet.domain.lease import (
    LOST_STATES,
    OPEN_STATES,
    TRANSITIONS,
    LeaseEnded,
    LeaseEvent,
    LeaseId,
    LeaseState,
    NotRetryable,
    after,
    require_retryable,
)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(LeaseState, LeaseEvent)))
def test_every_pair_is_handled_or_refused(state: LeaseState, event: LeaseEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(LeaseEnded, match=state.value):
            after(state, event)


def test_a_lease_ends_once() -> None:
    assert {state for state, _ in TRANSITIONS} == OPEN_STATES
    assert set(TRANSITIONS.values()) | {LeaseState.OPEN} == set(LeaseState)
    ended = a_lease().ended(LeaseEvent.FENCE, 5_000, reason="gone")
    assert (ended.state, ended.ended_ms, ended.reason, ended.is_open) == (LeaseState.FENCED, 5_000, "gone", False)
    with pytest.raises(LeaseEnded):
        ended.ended(LeaseEvent.SETTLE, 6_000)


def test_it_is_due_after_its_deadline_and_the_grace() -> None:
    assert a_lease().due_ms(POLICY) == 31_000 + POLICY.settle_grace_ms


@pytest.mark.parametrize("state", LeaseState)
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_may_have_run_is_repeated_only_if_that_is_harmless(state: LeaseState, idempotent: bool) -> None:
    lease = a_lease(state=state, idempotent=idempotent)
    if state is LeaseState.DECLINED or (state in LOST_STATES and idempotent):
        require_retryable(lease, POLICY)
    else:
        with pytest.raises(NotRetryable):
            require_retryable(lease, POLICY)


def test_an_operator_may_have_lost_calls_repeated_and_never_without_end() -> None:
    lost = a_lease(state=LeaseState.FENCED)
    require_retryable(lost, msgspec.structs.replace(POLICY, retry_lost=True))
    for changes in ({"attempt": POLICY.max_attempts}, {"retried_as": numbered(11)}):
        with pytest.raises(NotRetryable):
            require_retryable(a_lease(state=LeaseState.DECLINED, **changes), POLICY)


def test_a_lease_id_is_a_ulid() -> None:
    assert LeaseId.parse(numbered(7)) == numbered(7)
