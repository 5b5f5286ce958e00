"""Requests to devices over real gRPC: one result, of the right device, in time, in size; and what outlives a daemon."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.eventually import eventually
from fakes.node_server_harness import (
    ECHO,
    MAX_RESULT_BYTES,
    PATIENCE,
    PRINT,
    ByHand,
    MovedClock,
    NodeServerHarness,
    code_of,
    open_harness,
)
from palyra.devicelink.limits import MAX_OPEN_REQUESTS_PER_DEVICE
from palyra.errors import PalyraError
from palyra.nodes.domain.records import RequestState
from palyra.wire.node.v1 import node_pb2 as wire


@pytest.fixture(params=["file", "sql"])
async def harness(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[NodeServerHarness]:
    async with asyncio.timeout(4 * PATIENCE), open_harness(tmp_path, backend=request.param) as opened:
        yield opened


@pytest.fixture
async def device(harness: NodeServerHarness) -> AsyncIterator[ByHand]:
    paired = await harness.pair()
    yield paired
    await paired.close()


async def refusal_of(call: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), code_of(refused.value)


async def error_of(asked: "asyncio.Task[bytes]") -> PalyraError:
    with pytest.raises(PalyraError) as failed:
        await asked
    return failed.value


async def test_a_request_goes_to_its_device_and_the_result_comes_back(
    harness: NodeServerHarness, device: ByHand
) -> None:
    stream = await device.online()
    asked = harness.invoke(device, PRINT)
    dispatch = await stream.receive("dispatch")
    assert (dispatch.capability, dispatch.input_json) == ("print", b'{"text":"hi"}')
    assert 0 < dispatch.timeout_ms <= PATIENCE * 1000 and dispatch.max_result_bytes == MAX_RESULT_BYTES
    await stream.say(accepted=wire.CapabilityAccepted(request_id=dispatch.request_id))
    await stream.beat()
    open_one = harness.request(dispatch.request_id)
    assert open_one is not None and open_one.accepted_ms and open_one.state is RequestState.DISPATCHED
    await device.report(dispatch.request_id, b'{"pages": 1.0}')
    assert await asked == b'{"pages": 1.0}'
    ended = harness.request(dispatch.request_id)
    assert ended is not None and ended.state is RequestState.SUCCEEDED and ended.input_json == ""
    assert len(ended.output_digest) == 64
    (ended,) = harness.events("node.request_ended")
    assert (ended["state"], ended["error"], ended["capability"]) == ("succeeded", None, "print")


@pytest.mark.parametrize(
    ("kind", "code", "state"),
    [("failed", "nodes.device_failed", RequestState.FAILED), ("rejected", "nodes.rejected", RequestState.REJECTED)],
)
async def test_a_device_that_cannot_or_may_not_says_so(
    harness: NodeServerHarness, device: ByHand, kind: str, code: str, state: RequestState
) -> None:
    stream = await device.online()
    asked = harness.invoke(device, PRINT)
    dispatch = await stream.receive("dispatch")
    await stream.say(mediation=wire.CapabilityMediation(request_id=dispatch.request_id))
    await stream.beat()
    waiting = harness.request(dispatch.request_id)
    assert waiting is not None and waiting.state is RequestState.AWAITING_LOCAL_MEDIATION
    await device.fail(dispatch.request_id, kind, "printer.jam", "paper\njam\x1b[2J" + "x" * 5000)
    error = await error_of(asked)
    assert error.code == code and error.details["device_code"] == "printer.jam"
    assert error.message.startswith("paper jam [2J") and len(error.message) <= 1024
    ended = harness.request(dispatch.request_id)
    assert ended is not None and ended.state is state


@pytest.mark.promise("P-device-once")
async def test_a_result_of_another_device_does_not_count(harness: NodeServerHarness, device: ByHand) -> None:
    other = await harness.pair("another")
    stream, _ = await device.online(), await other.online()
    asked = harness.invoke(device)
    dispatch = await stream.receive("dispatch")
    refused = await refusal_of(other.report(dispatch.request_id, b'"forged"'))
    assert refused == (grpc.StatusCode.PERMISSION_DENIED, "nodes.result_wrong_device")
    # In the right device's name it gets no further.
    refused = await refusal_of(other.report(dispatch.request_id, b'"forged"', device_id=device.device_id))
    assert refused == (grpc.StatusCode.PERMISSION_DENIED, "")
    assert not asked.done()
    await device.report(dispatch.request_id, b'"true"')
    assert await asked == b'"true"'
    assert harness.refused == ["nodes.result_wrong_device", "nodes.other_device"]
    assert {one["code"] for one in harness.events("node.peer_refused")} == set(harness.refused)
    await other.close()


async def test_another_device_cannot_accept_or_ask_for_somebody_elses_request(
    harness: NodeServerHarness, device: ByHand
) -> None:
    other = await harness.pair("another")
    stream, others = await device.online(), await other.online()
    asked = harness.invoke(device, PRINT)
    dispatch = await stream.receive("dispatch")
    await others.say(accepted=wire.CapabilityAccepted(request_id=dispatch.request_id))
    await others.say(mediation=wire.CapabilityMediation(request_id=dispatch.request_id))
    await others.beat()
    request = harness.request(dispatch.request_id)
    assert request is not None and request.accepted_ms is None and request.state is RequestState.DISPATCHED
    await device.report(dispatch.request_id)
    await asked
    await other.close()


@pytest.mark.promise("P-device-once")
async def test_the_first_result_is_the_only_one(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    asked = harness.invoke(device)
    dispatch = await stream.receive("dispatch")
    results = await asyncio.gather(
        *(device.report(dispatch.request_id, b"%d" % number) for number in range(5)), return_exceptions=True
    )
    assert sum(result is None for result in results) == 1
    assert await asked == b"%d" % results.index(None)
    refused = await refusal_of(device.report(dispatch.request_id))
    assert refused == (grpc.StatusCode.ALREADY_EXISTS, "nodes.result_duplicate")
    assert len(harness.events("node.request_ended")) == 1
    assert await refusal_of(device.report("01ARZ3NDEKTSV4RRFFQ69G5FAV")) == (
        grpc.StatusCode.NOT_FOUND,
        "nodes.result_unknown",
    )


async def test_a_device_that_never_answers_is_waited_for_no_longer_than_asked(
    harness: NodeServerHarness, device: ByHand
) -> None:
    stream = await device.online()
    asked = harness.invoke(device, timeout_ms=300)
    dispatch = await stream.receive("dispatch")
    assert (await error_of(asked)).code == "nodes.timed_out"
    assert (await stream.receive("cancel")).request_id == dispatch.request_id
    assert not harness.dispatcher._lines[device.device_id].given, "a line that stays for weeks keeps nothing of it"
    refused = await refusal_of(device.report(dispatch.request_id))
    assert refused == (grpc.StatusCode.FAILED_PRECONDITION, "nodes.result_late")
    ended = harness.request(dispatch.request_id)
    assert ended is not None and ended.state is RequestState.TIMED_OUT and ended.output_digest == ""


@pytest.mark.promise("P-device-once")
async def test_a_result_after_the_deadline_is_late_though_nobody_looked_yet(tmp_path: Path) -> None:
    clock = MovedClock()
    async with asyncio.timeout(3 * PATIENCE), open_harness(tmp_path, clock=clock, heartbeat_timeout=1e6) as harness:
        device = await harness.pair()
        stream = await device.online()
        asked = harness.invoke(device)
        dispatch = await stream.receive("dispatch")
        clock.ahead_ms = int(PATIENCE * 1000) + 1000
        refused = await refusal_of(device.report(dispatch.request_id))
        assert refused == (grpc.StatusCode.FAILED_PRECONDITION, "nodes.result_late")
        asked.cancel()
        await asyncio.wait([asked])
        await device.close()


@pytest.mark.promise("P-device-once")
async def test_a_result_that_is_too_large_ends_the_request(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    asked = harness.invoke(device)
    dispatch = await stream.receive("dispatch")
    large = b'"' + b"x" * (MAX_RESULT_BYTES - 1) + b'"'
    refused = await refusal_of(device.report(dispatch.request_id, large))
    assert refused == (grpc.StatusCode.OUT_OF_RANGE, "nodes.result_too_large")
    assert (await error_of(asked)).code == "nodes.result_too_large"
    assert (await refusal_of(device.report(dispatch.request_id, b'"smaller"')))[1] == "nodes.result_duplicate"


@pytest.mark.promise("P-limits")
async def test_a_result_of_exactly_the_limit_fits(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    asked = harness.invoke(device)
    dispatch = await stream.receive("dispatch")
    most = b'"' + b"x" * (MAX_RESULT_BYTES - 2) + b'"'
    await device.report(dispatch.request_id, most)
    assert await asked == most


@pytest.mark.parametrize("output", [b"", b"{", b'{"a":1,"a":2}', b"\xff", b"[" * 1000 + b"]" * 1000, b"NaN"])
async def test_a_result_that_is_no_json_ends_the_request(
    harness: NodeServerHarness, device: ByHand, output: bytes
) -> None:
    stream = await device.online()
    asked = harness.invoke(device)
    dispatch = await stream.receive("dispatch")
    refused = await refusal_of(device.report(dispatch.request_id, output))
    assert refused == (grpc.StatusCode.INVALID_ARGUMENT, "nodes.result_malformed")
    assert (await error_of(asked)).code == "nodes.result_malformed"


async def test_a_call_that_is_stopped_stops_the_device(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    asked = harness.invoke(device)
    dispatch = await stream.receive("dispatch")
    asked.cancel()
    assert (await stream.receive("cancel")).request_id == dispatch.request_id
    with pytest.raises(asyncio.CancelledError):
        await asked
    ended = harness.request(dispatch.request_id)
    assert ended is not None and (ended.state, ended.error_code) == (RequestState.FAILED, "nodes.cancelled")
    assert (await refusal_of(device.report(dispatch.request_id)))[1] == "nodes.result_late"


async def test_a_withheld_capability_is_taken_from_what_runs(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    asked, spared = harness.invoke(device, PRINT), harness.invoke(device, ECHO)
    first, second = await stream.receive("dispatch"), await stream.receive("dispatch")
    by_name = {one.capability: one.request_id for one in (first, second)}
    await harness.paired.set_withheld(device.device_id, "print", withheld=True, actor="user:o")
    assert (await error_of(asked)).code == "nodes.capability_withheld"
    assert (await stream.receive("cancel")).request_id == by_name["print"]
    await device.report(by_name["echo"])
    await spared


async def test_a_device_that_is_not_there_is_waited_for(harness: NodeServerHarness, device: ByHand) -> None:
    asked = harness.invoke(device)
    await eventually(harness.requests)
    assert harness.requests()[0].state is RequestState.QUEUED
    stream = await device.online()
    # The dispatch may come before the answer to the first heartbeat, which `online` waited for.
    await eventually(lambda: harness.requests()[0].state is RequestState.DISPATCHED)
    await device.report(harness.requests()[0].id)
    assert await asked == b'"done"'
    await stream.beat()


async def test_a_device_that_never_comes_is_offline(harness: NodeServerHarness, device: ByHand) -> None:
    error = await error_of(harness.invoke(device, timeout_ms=200))
    assert error.code == "nodes.offline" and harness.requests()[0].state is RequestState.TIMED_OUT
    # It comes after all: nothing is given to it.
    stream = await device.online()
    assert harness.requests()[0].dispatched_ms is None
    await stream.beat()


async def test_what_was_sent_and_never_arrived_is_sent_again(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    asked = harness.invoke(device, PRINT)
    dispatch = await stream.receive("dispatch")
    await device.close()
    await eventually(lambda: not harness.registry.online())
    # The device says that it has nothing open, and never said that it had begun.
    device.connect()
    await device.register()
    again = await device.stream().receive("dispatch")
    assert again.request_id == dispatch.request_id and again.timeout_ms < dispatch.timeout_ms
    await device.report(again.request_id)
    await asked
    assert [one["again"] for one in harness.events("node.request_dispatched")] == [False, True]


@pytest.mark.promise("P-device-once")
async def test_what_was_begun_is_not_sent_again_unless_it_may_be_done_twice(
    harness: NodeServerHarness, device: ByHand
) -> None:
    stream = await device.online()
    once, twice = harness.invoke(device, PRINT), harness.invoke(device, ECHO)
    for _ in range(2):
        dispatch = await stream.receive("dispatch")
        await stream.say(accepted=wire.CapabilityAccepted(request_id=dispatch.request_id))
    await stream.beat()
    await device.close()
    await eventually(lambda: not harness.registry.online())
    device.connect()
    await device.register()
    again = await device.stream().receive("dispatch")
    assert again.capability == "echo"
    assert (await error_of(once)).code == "nodes.request_lost"
    await device.report(again.request_id)
    await twice


async def test_what_a_device_still_has_is_left_to_it(harness: NodeServerHarness, device: ByHand) -> None:
    stream = await device.online()
    asked = harness.invoke(device, PRINT)
    dispatch = await stream.receive("dispatch")
    await device.close()
    await eventually(lambda: not harness.registry.online())
    device.connect()
    answer = await device.register(open_ids=(dispatch.request_id, "01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    assert list(answer.abandoned_request_ids) == ["01ARZ3NDEKTSV4RRFFQ69G5FAV"]
    await device.report(dispatch.request_id)
    await asked
    assert len(harness.events("node.request_dispatched")) == 1


@pytest.mark.promise("P-limits")
async def test_a_device_has_so_many_requests_open_and_no_more(harness: NodeServerHarness, device: ByHand) -> None:
    asked = [harness.invoke(device) for _ in range(MAX_OPEN_REQUESTS_PER_DEVICE)]
    await eventually(lambda: len(harness.requests()) == MAX_OPEN_REQUESTS_PER_DEVICE)
    assert (await error_of(harness.invoke(device))).code == "nodes.too_many_requests"
    for one in asked:
        one.cancel()
    await asyncio.wait(asked)


@pytest.mark.promise("P-device-recovers")
@pytest.mark.parametrize("backend", ["file", "sql"])
async def test_a_daemon_that_comes_back_goes_on_with_what_is_in_time_and_with_nothing_else(
    tmp_path: Path, backend: str
) -> None:
    """Queued and dispatched requests of a daemon that was killed, some past their deadline when it is back."""
    clock = MovedClock()
    options: dict[str, Any] = {"backend": backend, "clock": clock, "heartbeat_timeout": 1e6}
    async with asyncio.timeout(4 * PATIENCE):
        first = NodeServerHarness(tmp_path, clock, heartbeat_timeout=1e6)
        await first.start(backend)
        here, away = await first.pair("here"), await first.pair("away")
        stream = await here.online()
        short, long = 60_000, 600_000
        sent = [first.invoke(here, PRINT, timeout_ms=time) for time in (short, long)]
        dispatched = [await stream.receive("dispatch") for _ in range(2)]
        queued = [first.invoke(away, ECHO, timeout_ms=time, input_json=b"%d" % time) for time in (short, long)]
        await eventually(lambda: len(first.requests()) == 4)
        # Killed: nobody says goodbye, nothing is cancelled on the way out.
        first.tending.cancel()
        await first.listener.stop(None)
        first.store.close()
        for task in (*sent, *queued):
            task.cancel()
        await asyncio.wait((*sent, *queued))
        await here.close()

        clock.ahead_ms += 2 * short
        async with open_harness(tmp_path, **options) as second:
            for device in (here, away):
                device.harness = second
            await eventually(lambda: sum(one.state is RequestState.TIMED_OUT for one in second.requests()) == 2)
            late = {one.id for one in second.requests() if one.state is RequestState.TIMED_OUT}
            by_timeout = {one.timeout_ms > short: one.request_id for one in dispatched}
            here.connect()
            answer = await here.register(open_ids=tuple(by_timeout.values()))
            assert list(answer.abandoned_request_ids) == [by_timeout[False]] and by_timeout[False] in late
            assert (await refusal_of(here.report(by_timeout[False])))[1] == "nodes.result_late"
            await here.report(by_timeout[True])
            away.connect()
            await away.register()
            stream = away.stream()
            given = await stream.receive("dispatch")
            assert given.input_json == b"%d" % long and given.timeout_ms <= long - 2 * short
            await away.report(given.request_id)
            await stream.beat()
            ends = {one.id: one.state for one in second.requests()}
            assert sorted(ends.values()) == ["succeeded", "succeeded", "timed_out", "timed_out"]
            for device in (here, away):
                await device.close()
