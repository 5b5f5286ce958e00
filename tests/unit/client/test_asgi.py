import asyncio
import threading
from typing import Any

import pytest

from fakes.tiny_api import TinyApi
from palyra.client.client import Client
from palyra.client.in_process import AsyncAsgiTransport, StartupFailed
from palyra.client.protocol import DEFAULT_LIMITS, BadAnswer, ConnectionLost, get


def test_the_lifespan_spans_the_client() -> None:
    api = TinyApi()
    with Client.in_process(api.app) as client:
        assert api.started
        client.health()
    assert not api.started


def test_closing_twice_is_fine_and_leaves_no_thread() -> None:
    client = Client.in_process(TinyApi().app)
    client.close()
    client.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "palyra-client"]


async def test_a_thread_that_runs_a_loop_may_use_and_close_it() -> None:
    with Client.in_process(TinyApi().app) as client:
        client.health()


async def test_an_application_without_lifespan_serves_too() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hi"})

    transport = AsyncAsgiTransport(app, timeout=5, limits=DEFAULT_LIMITS)
    assert (await transport.exchange(get("/x"))).body == b"hi"
    await transport.close()


def test_a_failed_startup_is_said_and_cleaned_up() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no disk"})

    with pytest.raises(StartupFailed, match="no disk"):
        Client.in_process(app)
    assert not [thread for thread in threading.enumerate() if thread.name == "palyra-client"]


async def test_an_application_that_answers_wrongly() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        return

    async def headless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.body", "body": b"hi"})

    for app, error in ((silent, ConnectionLost), (headless, BadAnswer)):
        transport = AsyncAsgiTransport(app, timeout=5, limits=DEFAULT_LIMITS)
        for attempt in (transport.exchange, transport.open_stream):
            with pytest.raises(error):
                await attempt(get("/"))
        await transport.close()


async def test_a_caller_that_gives_up_ends_the_work() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    transport = AsyncAsgiTransport(app, timeout=60, limits=DEFAULT_LIMITS)
    caller = asyncio.create_task(transport.exchange(get("/")))
    await began.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()
    await transport.close()
