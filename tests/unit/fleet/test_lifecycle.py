import itertools

import pytest

from palyra.fleet.domain.worker import (
    LEASABLE,
    TRANSITIONS,
    WorkerLifecycleState,
    WorkerTransition,
    WrongWorkerState,
    after,
)

State, Event = WorkerLifecycleState, WorkerTransition


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair_is_handled_or_refused(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(WrongWorkerState, match=state.value):
            after(state, event)


def test_quarantine_is_left_by_a_person_only_and_then_through_a_new_attestation() -> None:
    ways = {
        (event, target)
        for (state, event), target in TRANSITIONS.items()
        if state is State.QUARANTINED and target is not State.QUARANTINED
    }
    assert ways == {
        (Event.RELEASE, State.REGISTERED),
        (Event.RELEASE_DRAINED, State.DRAINING),
        (Event.REMOVE, State.REMOVED),
    }
    assert {event for (state, event) in TRANSITIONS if state is State.QUARANTINED}.isdisjoint(
        {Event.ATTEST, Event.LEASE}
    )


def test_only_an_attestation_or_the_end_of_its_leases_makes_a_worker_available() -> None:
    into = {event for (state, event), target in TRANSITIONS.items() if target is State.AVAILABLE}
    assert into == {Event.ATTEST, Event.IDLE}
    assert {state for (state, event) in TRANSITIONS if event is Event.LEASE} == LEASABLE


def test_every_state_can_be_quarantined_and_removed_but_removed_is_the_end() -> None:
    for state in set(State) - {State.REMOVED}:
        assert (state, Event.QUARANTINE) in TRANSITIONS and (state, Event.REMOVE) in TRANSITIONS
    assert not any(state is State.REMOVED for state, _ in TRANSITIONS)
    assert set(TRANSITIONS.values()) == set(State)


def test_a_drain_outlasts_connections() -> None:
    for event in (Event.CONNECT, Event.DISCONNECT, Event.LOSE, Event.ATTEST, Event.LAPSE, Event.IDLE):
        assert after(State.DRAINING, event) is State.DRAINING
