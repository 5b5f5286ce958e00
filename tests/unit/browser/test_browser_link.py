"""The connection to the browser daemon: waited for only where one was ever started, and made anew when it is lost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from palyra.browser.domain.session_api import PROTOCOL_VERSION, HealthView
from palyra.browser.service import connection
from palyra.browser.service.access import TOKEN_NAME, BrowserAway, SocketPlace
from palyra.browser.service.client import BrowserClient
from palyra.browser.service.connection import BrowserLink, BrowserUnavailable
from palyra.browser.service.grpc_server import BrowserService, serve


async def test_who_read_the_token_of_a_daemon_that_was_killed_finds_the_one_that_follows(tmp_path: Path) -> None:
    nobody: Any = None
    service = BrowserService(
        nobody, nobody, lambda: HealthView(protocol_version=PROTOCOL_VERSION, software_version="1", status="ok")
    )
    folder, trace = tmp_path / "b", tmp_path / "used"
    trace.touch()

    async def greet(_client: BrowserClient) -> None:
        return

    place = SocketPlace.make(folder)
    async with serve(service, place):
        own = (folder / TOKEN_NAME).read_text()
        (folder / TOKEN_NAME).write_text("x" * len(own))
        link = BrowserLink(folder, trace, greet)
        connecting = asyncio.create_task(link.client())
        await asyncio.sleep(0.2)
        assert not connecting.done()
        (folder / TOKEN_NAME).write_text(own)
        assert (await (await connecting).health()).status == "ok"
        await link.close()
    place.close()


class Peer:
    def __init__(self, version: int = PROTOCOL_VERSION) -> None:
        self.version = version
        self.closed = 0

    async def health(self) -> HealthView:
        return HealthView(protocol_version=self.version, software_version="1", status="ok")

    async def close(self) -> None:
        self.closed += 1


class Harness:
    """``away`` is how often there is no daemon before there is one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away = 0
        self.peers: list[Peer] = []
        self.version = PROTOCOL_VERSION
        self.trace = folder / "used"
        self.greeted: list[Any] = []
        monkeypatch.setattr(BrowserClient, "at", self.at)
        monkeypatch.setattr(connection, "_LOOK_SECONDS", 0)
        self.link = BrowserLink(folder, self.trace, self.greet)

    def at(self, _folder: Path) -> Any:
        if self.away:
            self.away -= 1
            raise BrowserAway("nobody listens")
        self.peers.append(Peer(self.version))
        return self.peers[-1]

    async def greet(self, client: Any) -> None:
        self.greeted.append(client)


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    return Harness(tmp_path, monkeypatch)


async def test_one_that_was_never_started_is_not_waited_for(harness: Harness) -> None:
    harness.away = 3
    with pytest.raises(BrowserUnavailable, match="nobody listens"):
        await harness.link.client()
    assert harness.away == 2 and not harness.link.connected


async def test_one_that_starts_together_with_this_daemon_is_waited_for(harness: Harness) -> None:
    harness.away = 3
    harness.trace.touch()
    client: Any = await harness.link.client()
    assert [client] == harness.peers == harness.greeted and await harness.link.client() is client


async def test_a_lost_one_is_made_anew_and_closed_when_nobody_can_hold_it_any_more(harness: Harness) -> None:
    first: Any = await harness.link.client()
    await harness.link.lost(first)
    await harness.link.lost(first)
    second: Any = await harness.link.client()
    assert second is not first and first.closed == 0, "calls that are about to fail may still use it"
    await harness.link.lost(second)
    assert first.closed == 1
    await harness.link.close()
    assert second.closed == 1


async def test_another_version_is_refused_and_let_go(harness: Harness) -> None:
    harness.version = PROTOCOL_VERSION + 1
    with pytest.raises(BrowserUnavailable, match="speaks version"):
        await harness.link.client()
    assert [peer.closed for peer in harness.peers] == [1] and harness.greeted == []
