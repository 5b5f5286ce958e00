import pytest

from palyra.nodes.dispatch import ENDED, OPEN, TRANSITIONS, WITH_DEVICE, RequestEvent, RequestState, WrongRequestState
from palyra.nodes.dispatch import after as state_after


def test_every_pair_is_handled_or_refused() -> None:
    for state in RequestState:
        for event in RequestEvent:
            if (state, event) in TRANSITIONS:
                assert state_after(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(WrongRequestState, match=state.value):
                    state_after(state, event)


def test_what_has_ended_stays_ended() -> None:
    assert {state for state, _ in TRANSITIONS} == OPEN
    assert {RequestState.SUCCEEDED, RequestState.FAILED, RequestState.TIMED_OUT, RequestState.REJECTED} == ENDED


def test_only_a_device_that_has_the_request_brings_a_result() -> None:
    results = {RequestEvent.SUCCEED, RequestEvent.REJECT}
    assert {state for state, event in TRANSITIONS if event in results} == WITH_DEVICE


def test_whatever_is_open_can_run_out_of_time_and_be_cancelled() -> None:
    for state in OPEN:
        assert state_after(state, RequestEvent.TIME_OUT) is RequestState.TIMED_OUT
        assert state_after(state, RequestEvent.CANCEL) is RequestState.FAILED
