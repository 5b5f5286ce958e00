import asyncio

import pytest

from fakes.wasm_guests import GRANTS, FakeServices
from palyra.wasm.domain.frames import Ask
from palyra.wasm.domain.grants import CapabilityGrantSet, Grant
from palyra.wasm.domain.host_interface import GuestRequest, GuestResponse, HostRefusal, NoServices, Status
from palyra.wasm.domain.limits import RuntimeLimits
from palyra.wasm.host_call_dispatcher import HostAnswers


async def _answer(services=None, limits=None, grants=GRANTS, **ask):
    answers = HostAnswers(grants, services or FakeServices(), limits or RuntimeLimits())
    return await answers.answer(Ask(**({"number": 3, "operation": "storage-get", "handle": 30_000, "key": "k"} | ask)))


async def test_an_answer_has_its_questions_number():
    services = FakeServices()
    services.stored["k"] = b"value"
    answer = await _answer(services)
    assert (answer.number, answer.status, answer.result) == (3, Status.OK, b"value")


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        ({"operation": "format-disk"}, Status.BAD_REQUEST),
        ({"handle": 30_001}, Status.BAD_HANDLE),
        ({"handle": 10_000}, Status.BAD_HANDLE),
        ({"key": "../k"}, Status.BAD_REQUEST),
        ({"operation": "storage-put", "body": bytes(2_000_000)}, Status.TOO_LARGE),
        ({"operation": "channel-send", "handle": 40_000, "body": b"\xff"}, Status.BAD_UTF8),
        ({"operation": "secret-reveal", "handle": 20_001}, Status.DENIED),
    ],
)
async def test_a_worker_that_was_taken_over_gets_no_more_than_its_guest(ask, status):
    services = FakeServices()
    assert (await _answer(services, **ask)).status == status
    assert services.asked == []


async def test_a_response_beyond_the_limit_is_a_status():
    services = FakeServices()
    services.stored["k"] = bytes(100)
    services.response = GuestResponse(status=200, body=bytes(100))
    limits = RuntimeLimits(max_response_bytes=99)
    assert (await _answer(services, limits)).status == Status.TOO_LARGE
    answer = await _answer(services, limits, operation="http", handle=10_000, method="GET", key="/")
    assert answer.status == Status.TOO_LARGE


async def test_each_question_has_its_own_time():
    services = FakeServices()
    services.hold = asyncio.Event()
    assert (await _answer(services, RuntimeLimits(host_call_timeout_ms=10))).status == Status.TIMED_OUT
    assert services.waiting == 0


async def test_without_services_everything_is_unavailable():
    grants = CapabilityGrantSet(storage_prefixes=("p",))
    assert (await _answer(NoServices(), grants=grants)).status == Status.UNAVAILABLE
    grant = Grant(kind="http", handle=10_000, name="x")
    services = NoServices()
    for question in (
        services.http(grant, GuestRequest(method="GET", path="/", max_response_bytes=1)),
        services.secret_reveal(grant),
        services.storage_put(grant, "k", b""),
        services.storage_delete(grant, "k"),
        services.storage_list(grant, ""),
        services.channel_send(grant, ""),
    ):
        with pytest.raises(HostRefusal):
            await question
