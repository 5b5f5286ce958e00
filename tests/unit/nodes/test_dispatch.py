import pytest

from palyra.nodes.domain.records import (
    ENDED_REQUESTS,
    OPEN_REQUESTS,
    REQUEST_TRANSITIONS,
    WITH_DEVICE,
    RequestEvent,
    RequestState,
    WrongRequestState,
)
from palyra.nodes.domain.records import next_request_state as state_after


def test_every_pair_is_handled_or_refused() -> None:
    for state in RequestState:
        for event in RequestEvent:
            if (state, event) in REQUEST_TRANSITIONS:
                assert state_after(state, event) is REQUEST_TRANSITIONS[state, event]
            else:
                with pytest.raises(WrongRequestState, match=state.value):
                    state_after(state, event)


def test_what_has_ended_stays_ended() -> None:
    assert {state for state, _ in REQUEST_TRANSITIONS} == OPEN_REQUESTS
    assert {
        RequestState.SUCCEEDED,
        RequestState.FAILED,
        RequestState.TIMED_OUT,
        RequestState.REJECTED,
    } == ENDED_REQUESTS


def test_only_a_device_that_has_the_request_brings_a_result() -> None:
    results = {RequestEvent.SUCCEED, RequestEvent.REJECT}
    assert {state for state, event in REQUEST_TRANSITIONS if event in results} == WITH_DEVICE


def test_whatever_is_open_can_run_out_of_time_and_be_cancelled() -> None:
    for state in OPEN_REQUESTS:
        assert state_after(state, RequestEvent.TIME_OUT) is RequestState.TIMED_OUT
        assert state_after(state, RequestEvent.CANCEL) is RequestState.FAILED
