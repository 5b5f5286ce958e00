"""The life of a lease's access at the proxy: every pair of state and event is in the table or refused by name."""

import itertools

import pytest

from palyra.errors import PalyraError
from palyra.fleet.egress.leases import (
    OVER,
    TRANSITIONS,
    AccessEvent,
    AccessState,
    LeaseAccess,
    LeaseGrant,
    LeaseOver,
    ListenerExists,
    NoListener,
    after,
)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(AccessState, AccessEvent)))
def test_every_pair_is_handled_or_refused(state: AccessState, event: AccessEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(PalyraError) as refused:
            after(state, event)
        assert refused.value.code.startswith("worker_egress.")


def test_nothing_leads_back_from_the_end() -> None:
    for (state, _), then in TRANSITIONS.items():
        assert state not in OVER or then in OVER
    for state in OVER:
        with pytest.raises(LeaseOver):
            after(state, AccessEvent.OPEN)


def test_one_door_at_a_time() -> None:
    with pytest.raises(ListenerExists):
        after(AccessState.SERVING, AccessEvent.OPEN)
    with pytest.raises(NoListener):
        after(AccessState.GRANTED, AccessEvent.CLOSE)


def test_over_is_known_by_the_state() -> None:
    grant = LeaseGrant(worker_id="w", lease_id="l", fence=1)
    assert not LeaseAccess(grant=grant, state=AccessState.SERVING, ends_ms=1).is_over
    assert LeaseAccess(grant=grant, state=AccessState.ENDING, ends_ms=1).is_over
