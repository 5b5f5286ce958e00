"""The client, against a server that answers by script: each method asks what it says, and errors are our own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.processes import own_descriptors
from palyra.browser.domain.action import Click, ElementTarget, Navigate, ObserveAsk, Screenshot
from palyra.browser.domain.budget import TooFast
from palyra.browser.domain.session_api import (
    Caller,
    LiveFrame,
    NoSuchSession,
    OperatorDoes,
    OperatorInput,
    ProfilesHead,
    SessionAsk,
    WatchAsk,
)
from palyra.browser.service.access import TOKEN_KEY, BrowserAway, SocketPlace
from palyra.browser.service.client import BrowserClient, TooLate
from palyra.browser.service.wire import ERROR_KEY, encode_error
from palyra.wire.browser.v1 import browser_pb2 as wire
from palyra.wire.browser.v1 import browser_pb2_grpc
from palyra.wire.browser.v1.browser_pb2_grpc import BrowserServiceServicer

ME = Caller(principal="agent:a", run_id="R1", call_id="C1")
METHODS = wire.DESCRIPTOR.services_by_name["BrowserService"].methods


class Scripted(BrowserServiceServicer):
    """Answers every method with an empty message, unless told otherwise, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        for method in METHODS:
            setattr(self, method.name, self._streaming(method) if method.server_streaming else self._once(method))

    def _received(self, method: Any, request: Any, context: Any) -> Any:
        self.asked.append((method.name, request, dict(context.invocation_metadata())))
        return self.answers.get(method.name, getattr(wire, method.output_type.name)())

    def _once(self, method: Any) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            found = self._received(method, request, context)
            if callable(found):
                await found()
            if isinstance(found, Exception):
                error: Any = found
                await context.abort(grpc.StatusCode.NOT_FOUND, "no", ((ERROR_KEY, encode_error(error)),))
            return found

        return answer

    def _streaming(self, method: Any) -> Any:
        async def answer(request: Any, context: Any) -> None:
            for each in self._received(method, request, context):
                await context.write(each)

        return answer


@contextlib.asynccontextmanager
async def scripted(folder: Path) -> AsyncIterator[tuple[Scripted, BrowserClient, str]]:
    place = SocketPlace.make(folder)
    token = place.new_token().reveal()
    service = Scripted()
    server = grpc.aio.server()
    browser_pb2_grpc.add_BrowserServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(place.address)
    await server.start()
    try:
        async with BrowserClient.at(folder) as client:
            yield service, client, token
    finally:
        await server.stop(0)
        place.close()


def deep(tmp_path: Path) -> Path:
    """Longer than the address of a socket may be."""
    return tmp_path / ("d" * 100) / ("e" * 100)


async def test_a_request_says_for_whom_and_proves_where_from(tmp_path: Path) -> None:
    async with scripted(deep(tmp_path)) as (service, client, token):
        service.answers["CreateSession"] = wire.SessionResponse(
            session=wire.SessionView(session_id="S1", principal="agent:a", state=1)  # type: ignore[arg-type]
        )
        view = await client.create_session(ME, SessionAsk(hosts=("a.example",), budget={"idle_ttl_ms": 9}))
        assert (view.session_id, view.state) == ("S1", "open")
        ((name, request, metadata),) = service.asked
        assert (name, request.caller.principal, request.caller.call_id) == ("CreateSession", "agent:a", "C1")
        assert (list(request.hosts), dict(request.budget)) == (["a.example"], {"idle_ttl_ms": 9})
        assert metadata[TOKEN_KEY] == token


async def test_every_method_of_the_service_has_one_here(tmp_path: Path) -> None:
    """A method that is added to the service and forgotten in the client fails here."""
    target = ElementTarget(ref="e1")
    async with scripted(tmp_path / "b") as (service, client, _):
        service.answers["ReadDownload"] = [wire.DownloadChunk(data=b"ab"), wire.DownloadChunk(offset=2, data=b"c")]
        service.answers["WatchSession"] = [
            wire.WatchEvent(frame=wire.LiveFrame(tab="t1", picture=b"j")),
            wire.WatchEvent(event=wire.SessionEvent(number=1, kind="browser.opened")),
        ]
        session = wire.SessionView(session_id="S1", state=2)  # type: ignore[arg-type]
        for name in ("GetSession", "TakeOver", "HandBack", "CreateSession"):
            service.answers[name] = wire.SessionResponse(session=session)
        download = wire.DownloadResponse(download=wire.DownloadView(id="D1", folder="allowlist"))
        service.answers |= {"ReleaseDownload": download, "DeleteDownload": download}
        service.answers["Observe"] = wire.ObserveResponse(form=1, text="- main")  # type: ignore[arg-type]
        chunks = [each async for each in client.read_download(ME, "S1", "D1")]
        seen = [each async for each in client.watch(ME, "S1", WatchAsk())]
        service.answers["FollowProfiles"] = [wire.ProfilesHead(generation=3, mark="b", rolled_back=True)]
        received = ProfilesHead(generation=4, mark="c")
        assert [each async for each in client.follow_profiles(ME, received)] == [
            ProfilesHead(generation=3, mark="b", rolled_back=True)
        ]
        service.answers["AcceptProfiles"] = wire.ProfilesHead(generation=5, mark="d")
        assert await client.accept_profiles(ME) == ProfilesHead(generation=5, mark="d")
        await client.create_session(ME, SessionAsk())
        await client.health()
        await client.sessions(ME)
        await client.navigate(ME, "S1", Navigate(url="https://a.example/", tab="t1"))
        await client.screenshot(ME, "S1", Screenshot(full_page=True))
        await client.act(ME, "S1", [Click(target=target)])
        await client.observe(ME, "S1", ObserveAsk(find="x"))
        for read in (client.tabs, client.console_log, client.network_log, client.events, client.cookies):
            await read(ME, "S1")
        for ask in (client.downloads, client.get_session, client.close_session, client.hand_back):
            await ask(ME, "S1")
        await client.release_download(ME, "S1", "D1")
        await client.delete_download(ME, "S1", "D1")
        await client.profiles(ME)
        await client.create_profile(ME, "work")
        await client.rename_profile(ME, "P1", name="home")
        await client.delete_profile(ME, "P1")
        await client.reset_profile(ME, "P1")
        await client.export_storage_state(ME, "S1")
        await client.import_storage_state(ME, "S1", b"{}")
        await client.take_over(ME, "S1", "it is stuck")
        await client.operate(ME, "S1", [OperatorInput(does=OperatorDoes.KEY, key="Enter")])
    assert b"".join(chunks) == b"abc"
    assert isinstance(seen[0], LiveFrame)
    assert {name for name, _, _ in service.asked} == {method.name for method in METHODS}
    for name, request, _ in service.asked:
        if name != "Health":
            assert request.caller.principal == "agent:a", name
        if "session_id" in request.DESCRIPTOR.fields_by_name:
            assert request.session_id == "S1", name


async def test_an_error_is_raised_as_itself(tmp_path: Path) -> None:
    async with scripted(tmp_path / "b") as (service, client, _):
        service.answers["GetSession"] = NoSuchSession("there is no session 'S9'")
        with pytest.raises(NoSuchSession, match="S9"):
            await client.get_session(ME, "S9")
        service.answers["Act"] = wire.ActResponse(
            outcomes=[wire.ActionOutcome(tab="t1")], problem_json=encode_error(TooFast("slow", retry_after_ms=4))
        )
        report = await client.act(ME, "S1", [Click(target=ElementTarget(ref="e1"))] * 2)
        assert isinstance(report.problem, TooFast)
        assert (len(report.outcomes), report.picture) == (1, None)


async def test_a_daemon_that_is_slow_or_gone_has_a_code(tmp_path: Path) -> None:
    async with scripted(tmp_path / "b") as (service, client, _):
        service.answers["Health"] = asyncio.Event().wait
        with pytest.raises(TooLate):
            await client._ask("Health", wire.HealthRequest(), 0.05)
        service.answers["Health"] = 3
        with pytest.raises(BrowserAway, match="unknown"):
            await client.health()
    place = SocketPlace.make(tmp_path / "c")
    place.new_token()
    async with BrowserClient.at(tmp_path / "c") as client:
        with pytest.raises(BrowserAway, match="unavailable"):
            await client.health()
    place.close()


def test_where_there_is_none_no_descriptor_is_left(tmp_path: Path) -> None:
    SocketPlace.make(tmp_path / "b").close()
    before = own_descriptors()
    for folder in ("b", "nowhere"):
        with pytest.raises(BrowserAway):
            BrowserClient.at(tmp_path / folder)
    assert own_descriptors() == before
