"""The frame of an answer: one document, its status, its exit code, and no more told than meant."""

import asyncio
import logging
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fakes.raw_http import RawAnswer, ask
from palyra.errors import ExitCode
from palyra.limits import MAX_HTTP_BODY_BYTES
from palyra.pipeline.domain.call import CallDenied
from palyra.server.http.envelope import EXIT_CODE_HEADER, answer, answer_failure, guard, read_object


async def through(handler: Any, body: object = b"") -> RawAnswer:
    return await ask(Starlette(routes=[Route("/", guard(handler), methods=["POST"])]), "POST", "/", body=body)


async def echoing(request: Request) -> Response:
    return answer(await read_object(request))


@pytest.mark.promise("P-output")
async def test_every_answer_has_an_exit_code_and_is_not_cached() -> None:
    good = await through(echoing, {"a": 1})
    assert good.document == {"ok": True, "data": {"a": 1}}
    bad = await through(echoing, b"[1]")
    for got, code in [(good, "0"), (bad, "2")]:
        assert got.headers[EXIT_CODE_HEADER.lower()] == code
        assert got.headers["cache-control"] == "no-store" and got.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "json.malformed"),
        (b"[]", 400, "http.wrong_shape"),
        (b'"x"', 400, "http.wrong_shape"),
        (b"null", 400, "http.wrong_shape"),
        (b'{"a":1,"a":1}', 400, "json.duplicate_key"),
        (b'{"a":NaN}', 400, "json.ambiguous_number"),
        (b'{"a":1.0}', 400, "json.ambiguous_number"),
        (b"\xef\xbb\xbf{}", 400, "json.malformed"),
        (b'{"a":"\xff"}', 400, "json.malformed"),
        (b'{"a":' + b"[" * 70 + b"]" * 70 + b"}", 400, "json.too_deep"),
        (b"[" * 100_000, 400, "json.too_deep"),
        (b"{}{}", 400, "json.malformed"),
        (b" " * (MAX_HTTP_BODY_BYTES + 1), 413, "http.body_too_large"),
    ],
)
async def test_bodies_that_have_no_single_meaning_are_refused(body: bytes, status: int, code: str) -> None:
    got = await through(echoing, body)
    assert (got.status, got.code) == (status, code)


@pytest.mark.promise("P-limits")
async def test_the_largest_body_is_read_and_an_empty_one_is_an_empty_object() -> None:
    assert (await through(echoing)).data == {}
    full = b'{"a":"' + b"x" * (MAX_HTTP_BODY_BYTES - 8) + b'"}'
    assert len(full) == MAX_HTTP_BODY_BYTES and (await through(echoing, full)).status == 200


async def test_a_refusal_keeps_its_details() -> None:
    async def refuses(_: Request) -> Response:
        raise CallDenied("no", policies=["p"])

    got = await through(refuses)
    assert (got.status, got.headers["palyra-exit-code"]) == (403, "3")
    assert got.error["details"] == {"policies": ["p"]} and got.error["hint"]


async def test_a_bug_shows_nothing_of_itself_and_is_logged_whole(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(_: Request) -> Response:
        raise ValueError("password=hunter2 at /secret/path")

    with caplog.at_level(logging.ERROR, logger="palyra.api"):
        got = await through(breaks)
    assert got.status == 500 and got.code == "internal.bug"
    assert b"hunter2" not in got.body and b"ValueError" not in got.body
    assert "hunter2" in caplog.text


def test_a_recorded_failure_carries_the_record() -> None:
    response = answer_failure({"code": "x.y"}, 429, ExitCode.LIMIT, {"call_id": "c"})
    assert response.status_code == 429 and response.headers[EXIT_CODE_HEADER] == "5"
    assert bytes(response.body) == b'{"ok":false,"error":{"code":"x.y"},"data":{"call_id":"c"}}'


async def test_a_request_that_waits_when_the_daemon_stops_is_told_so() -> None:
    waits = asyncio.Event()

    async def waiting(_: Request) -> Response:
        waits.set()
        await asyncio.Event().wait()
        raise AssertionError

    asked = asyncio.ensure_future(through(waiting))
    await waits.wait()
    # As uvicorn cancels what still runs.
    asked.cancel(msg="Task cancelled, timeout graceful shutdown exceeded")
    got = await asked
    assert (got.status, got.code) == (503, "daemon.stopping")
    again = asyncio.ensure_future(through(waiting))
    waits.clear()
    await waits.wait()
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again
