import itertools

import pytest

from palyra.nodes.domain.records import (
    KIND_OF,
    OPEN_PAIRINGS,
    PAIRING_TRANSITIONS,
    PairingAlreadyDecided,
    PairingEvent,
    PairingState,
    next_pairing_state,
)

PAIRS = list(itertools.product(PairingState, PairingEvent))


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_every_pair_of_state_and_event_is_handled_or_refused(state, event):
    if (state, event) in PAIRING_TRANSITIONS:
        assert next_pairing_state(state, event) is PAIRING_TRANSITIONS[state, event]
        return
    with pytest.raises(PairingAlreadyDecided) as refused:
        next_pairing_state(state, event)
    assert refused.value.details == {"state": state.value}


def test_only_what_is_open_can_change_and_every_ending_is_for_good():
    assert {state for state, _ in PAIRING_TRANSITIONS} == OPEN_PAIRINGS
    for state in set(PairingState) - OPEN_PAIRINGS:
        assert not [event for event in PairingEvent if (state, event) in PAIRING_TRANSITIONS]


def test_nothing_is_completed_that_nobody_approved():
    into = {state for (state, _), target in PAIRING_TRANSITIONS.items() if target is PairingState.COMPLETED}
    assert into == {PairingState.APPROVED}


def test_every_event_has_its_entry_in_the_journal():
    assert set(KIND_OF) == set(PairingEvent)
