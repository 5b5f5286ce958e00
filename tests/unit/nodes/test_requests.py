import pytest

from fakes.node_state_harness import request_record
from palyra.errors import PalyraError
from palyra.nodes.domain import requests
from palyra.nodes.domain.records import ENDED_REQUESTS, RequestEvent, RequestState, WrongRequestState
from palyra.nodes.domain.requests import Refused, Succeeded

DEVICE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def at(state: RequestState, **changes: object) -> object:
    return request_record(device_id=DEVICE, state=state, deadline_ms=2_000, **changes)


def test_only_what_is_queued_and_in_time_may_be_sent() -> None:
    queued = request_record(deadline_ms=2_000)
    assert requests.may_send(queued, 1_999) and not requests.may_send(queued, 2_000)
    assert not requests.may_send(request_record(state=RequestState.DISPATCHED, deadline_ms=2_000), 1)


def test_an_ended_request_keeps_no_input() -> None:
    sent = requests.mark_sent(request_record(input_json="{}"), 5, RequestEvent.DISPATCH)
    assert (sent.state, sent.dispatched_ms, sent.input_json) == (RequestState.DISPATCHED, 5, "{}")
    done = requests.end_request(sent, RequestEvent.SUCCEED, 9, output_digest="ab")
    assert (done.state, done.finished_ms, done.input_json, done.output_digest) == ("succeeded", 9, "", "ab")
    with pytest.raises(WrongRequestState):
        requests.end_request(done, RequestEvent.FAIL, 10)


@pytest.mark.parametrize(
    ("record", "device", "now", "code"),
    [
        (None, DEVICE, 1, "nodes.result_unknown"),
        (at(RequestState.DISPATCHED), "other", 1, "nodes.result_wrong_device"),
        # Somebody else's is somebody else's, whatever state it is in.
        (at(RequestState.SUCCEEDED), "other", 9_999, "nodes.result_wrong_device"),
        (at(RequestState.SUCCEEDED), DEVICE, 9_999, "nodes.result_duplicate"),
        (at(RequestState.REJECTED), DEVICE, 1, "nodes.result_duplicate"),
        (at(RequestState.FAILED, error_code="nodes.device_failed"), DEVICE, 1, "nodes.result_duplicate"),
        (at(RequestState.FAILED, error_code="nodes.result_too_large"), DEVICE, 1, "nodes.result_duplicate"),
        (at(RequestState.FAILED, error_code="nodes.cancelled"), DEVICE, 1, "nodes.result_late"),
        (at(RequestState.FAILED, error_code="nodes.request_lost"), DEVICE, 1, "nodes.result_late"),
        (at(RequestState.FAILED, error_code="nodes.capability_withheld"), DEVICE, 1, "nodes.result_late"),
        (at(RequestState.TIMED_OUT), DEVICE, 1, "nodes.result_late"),
        (at(RequestState.DISPATCHED), DEVICE, 2_001, "nodes.result_late"),
        (at(RequestState.QUEUED), DEVICE, 1, "nodes.result_unknown"),
    ],
)
def test_what_keeps_a_result_from_counting(record: object, device: str, now: int, code: str) -> None:
    with pytest.raises(PalyraError) as refused:
        requests.require_result_counts(record, "r", device, now)  # type: ignore[arg-type]
    assert refused.value.code == code


def test_a_result_counts_up_to_the_deadline_also_while_a_person_is_asked() -> None:
    for state in (RequestState.DISPATCHED, RequestState.AWAITING_LOCAL_MEDIATION):
        record = request_record(device_id=DEVICE, state=state, deadline_ms=2_000)
        assert requests.require_result_counts(record, record.id, DEVICE, 2_000) is record


def test_a_result_fits_or_says_why_not() -> None:
    assert requests.find_fault(Succeeded(b'{"a":1.0}'), 9) is None
    assert requests.find_fault(Refused(rejected=True, code="c", message="x" * 99), 1) is None
    for output, code in ((b'"aaaaaaaaa"', "nodes.result_too_large"), (b"{", "nodes.result_malformed")):
        unfit = requests.find_fault(Succeeded(output), 9)
        assert unfit is not None and unfit.code == code


def test_a_devices_words_are_kept_readable() -> None:
    failed = requests.to_error(Refused(rejected=False, code="a\x1bb" * 99, message=""))
    assert failed.code == "nodes.device_failed" and failed.message == "the device gave no reason"
    assert len(failed.details["device_code"]) <= 64 and "\x1b" not in failed.details["device_code"]
    assert requests.to_error(Refused(rejected=True, code="", message="no")).code == "nodes.rejected"


def test_reunion_sorts_what_a_device_was_given() -> None:
    def given(**changes: object) -> object:
        return request_record(device_id=DEVICE, **{"state": RequestState.DISPATCHED, "deadline_ms": 2_000, **changes})

    kept, unheard = given(), given(idempotent=False)
    begun, begun_twice = given(idempotent=False, accepted_ms=1), given(idempotent=True, accepted_ms=1)
    late, ended = given(deadline_ms=10), given(state=RequestState.SUCCEEDED)
    elses = request_record(state=RequestState.DISPATCHED, deadline_ms=2_000)
    everything = [kept, unheard, begun, begun_twice, late, ended, elses]
    named = (kept.id, late.id, ended.id, elses.id, "unknown")  # type: ignore[attr-defined]
    reunion = requests.reunite(everything, DEVICE, named, 1_000)  # type: ignore[arg-type]
    assert reunion.redeliver == (unheard, begun_twice) and reunion.lost == (begun,)
    assert reunion.abandoned == (late.id, ended.id, elses.id, "unknown")  # type: ignore[attr-defined]


def test_overdue_is_what_is_open_past_its_deadline_and_why_depends_on_the_device() -> None:
    open_one, sent = request_record(), request_record(state=RequestState.DISPATCHED, dispatched_ms=5)
    ended = [request_record(state=state) for state in ENDED_REQUESTS]
    assert requests.list_overdue([open_one, sent, *ended], 2_001) == [open_one, sent]
    assert requests.list_overdue([open_one, sent], 2_000) == []
    assert requests.to_timeout_error(open_one).code == "nodes.offline"
    assert requests.to_timeout_error(sent).code == "nodes.timed_out"
