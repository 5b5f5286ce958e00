"""The changes of requests in the state, on a real store with its journal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.node_state_harness import BACKENDS, NodeStateHarness, request_record
from palyra.devicelink.limits import MAX_OPEN_INPUT_BYTES, MAX_OPEN_REQUESTS_PER_DEVICE
from palyra.nodes.domain.records import RequestState
from palyra.nodes.domain.requests import Refused, ResultTooLarge, Succeeded, TooManyRequests
from palyra.nodes.server import request_changes

FAR = 2**52
DEVICE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture(params=BACKENDS)
def harness(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NodeStateHarness]:
    opened = NodeStateHarness(tmp_path, request.param)
    yield opened
    opened.close()


def request(**changes: object) -> object:
    return request_record(device_id=DEVICE, deadline_ms=FAR, input_json="{}", **changes)


async def test_a_request_is_queued_or_sent_at_once_and_sent_in_its_order(harness: NodeStateHarness) -> None:
    state = await harness.state()
    first, second, third = (request() for _ in range(3))
    for one, connected in ((first, False), (second, False), (third, True)):
        await state.transact(lambda unit, r=one, c=connected: request_changes.enter(unit, r, connected=c))
    given = await state.transact(lambda unit: request_changes.send_waiting(unit, DEVICE, ()))
    assert [one.id for one in given] == sorted([first.id, second.id])  # type: ignore[attr-defined]
    assert all(one.state is RequestState.DISPATCHED and one.dispatched_ms for one in given)
    assert await state.transact(lambda unit: request_changes.send_waiting(unit, DEVICE, ())) == []
    again = await state.transact(lambda unit: request_changes.send_waiting(unit, DEVICE, [third.id]))  # type: ignore[attr-defined]
    assert [one.id for one in again] == [third.id]  # type: ignore[attr-defined]
    resent = [payload["again"] for _, payload in harness.events("node.request_dispatched")]
    assert sorted(resent) == [False, False, False, True]


async def test_open_requests_are_bounded_in_number_and_in_bytes(harness: NodeStateHarness) -> None:
    state = await harness.state()
    large = "x" * (MAX_OPEN_INPUT_BYTES - 10)
    await state.transact(
        lambda unit: request_changes.enter(unit, request_record(deadline_ms=FAR, input_json=large), connected=False)
    )
    with pytest.raises(TooManyRequests):
        await state.transact(
            lambda unit: request_changes.enter(
                unit, request_record(deadline_ms=FAR, input_json="x" * 11), connected=False
            )
        )

    def fill(unit: object) -> None:
        for _ in range(MAX_OPEN_REQUESTS_PER_DEVICE):
            request_changes.enter(
                unit,  # type: ignore[arg-type]
                request_record(device_id=DEVICE, deadline_ms=FAR),
                connected=False,
            )

    await state.transact(fill)
    with pytest.raises(TooManyRequests):
        await state.transact(
            lambda unit: request_changes.enter(
                unit, request_record(device_id=DEVICE, deadline_ms=FAR, input_json=""), connected=False
            )
        )


async def test_results_and_ends(harness: NodeStateHarness) -> None:
    state = await harness.state()
    records = [request(idempotent=False) for _ in range(6)]
    for one in records:
        await state.transact(lambda unit, r=one: request_changes.enter(unit, r, connected=True))
    ids = [one.id for one in records]  # type: ignore[attr-defined]

    async def settle(
        number: int, result: object, unfit: object = None, device: str = DEVICE
    ) -> request_changes.Settled:
        return await state.transact(
            lambda unit: request_changes.settle(unit, device, ids[number], result, unfit)  # type: ignore[arg-type]
        )

    done = await settle(0, Succeeded(b"1"))
    assert done.request is not None and done.request.state is RequestState.SUCCEEDED and done.output_json == b"1"
    failed = await settle(1, Refused(rejected=False, code="c", message="m"))
    rejected = await settle(2, Refused(rejected=True, code="c", message="m"))
    assert failed.error is not None and failed.error.code == "nodes.device_failed" and failed.refusal is None
    assert rejected.request is not None and rejected.request.state is RequestState.REJECTED
    large = await settle(3, Succeeded(b"1"), ResultTooLarge("large"))
    assert large.error is large.refusal and large.error is not None
    other = await settle(4, Succeeded(b"1"), device="other")
    assert other.request is None and other.refusal is not None
    await state.transact(lambda unit: request_changes.accept(unit, DEVICE, ids[4]))
    await state.transact(lambda unit: request_changes.accept(unit, "other", ids[5]))
    await state.transact(lambda unit: request_changes.ask_person(unit, DEVICE, ids[5]))
    fourth, fifth = (state.read(lambda unit, i=i: unit.requests.get(i)) for i in ids[4:])
    assert fourth is not None and fourth.accepted_ms
    assert fifth is not None and fifth.state is RequestState.AWAITING_LOCAL_MEDIATION and fifth.accepted_ms
    gone = await state.transact(lambda unit: request_changes.fail_all_of(unit, DEVICE))
    assert [one.error.code for one in gone if one.error] == ["nodes.device_gone"] * 2
    # What has ended is left as it is.
    for end in (request_changes.time_out, request_changes.cancel):
        after = await state.transact(lambda unit, e=end: e(unit, ids[0]))
        assert after.error is None and after.request is not None and after.request.state is RequestState.SUCCEEDED
    ends = [payload["state"] for _, payload in harness.events("node.request_ended")]
    assert sorted(ends) == ["failed", "failed", "failed", "failed", "rejected", "succeeded"]


async def test_overdue_requests_time_out_unless_somebody_here_waits(harness: NodeStateHarness) -> None:
    state = await harness.state()
    late, watched = (request_record(device_id=DEVICE, deadline_ms=1_500, input_json="{}") for _ in range(2))

    def enter(unit: object) -> None:
        unit.requests.put(late)  # type: ignore[attr-defined]
        unit.requests.put(watched)  # type: ignore[attr-defined]

    await state.transact(enter)
    # What is past its deadline is not given to anybody.
    assert await state.transact(lambda unit: request_changes.send_waiting(unit, DEVICE, [late.id])) == []
    settled = await state.transact(lambda unit: request_changes.time_out_overdue(unit, {watched.id}))
    assert [one.request.id for one in settled if one.request] == [late.id]
    left = state.read(lambda unit: unit.requests.get(watched.id))
    assert left is not None and left.open()


async def test_a_withheld_capability_and_a_lost_request_fail(harness: NodeStateHarness) -> None:
    state = await harness.state()
    one, other = request(capability="print", idempotent=False), request(capability="echo")
    for record in (one, other):
        await state.transact(lambda unit, r=record: request_changes.enter(unit, r, connected=True))
    error = TooManyRequests("any")
    ended = await state.transact(lambda unit: request_changes.fail_capability(unit, DEVICE, "echo", error))
    assert [settled.request.id for settled in ended if settled.request] == [other.id]  # type: ignore[attr-defined]
    await state.transact(lambda unit: request_changes.accept(unit, DEVICE, one.id))  # type: ignore[attr-defined]
    reunion, lost = await state.transact(lambda unit: request_changes.reunite(unit, DEVICE, ()))
    assert reunion.redeliver == () and [settled.error.code for settled in lost if settled.error] == [
        "nodes.request_lost"
    ]
