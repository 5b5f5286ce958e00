"""The server: no call gets through without this daemon's token, and its socket is gone with it."""

from pathlib import Path
from typing import Any

import pytest

from palyra.browser.domain.session_api import HealthView
from palyra.browser.service.access import SOCKET_NAME, TOKEN_NAME, BrowserAway, NotAdmitted, SocketPlace
from palyra.browser.service.client import BrowserClient
from palyra.browser.service.grpc_server import BrowserService, serve


async def test_a_client_of_an_earlier_daemon_is_turned_away(tmp_path: Path) -> None:
    nobody: Any = None
    service = BrowserService(
        nobody, nobody, lambda: HealthView(protocol_version=1, software_version="1", status="ok", sessions=3)
    )
    place = SocketPlace.make(tmp_path / "b")
    async with serve(service, place):
        assert (tmp_path / "b" / SOCKET_NAME).stat().st_mode & 0o777 == 0o600
        old = BrowserClient.at(tmp_path / "b")
        assert (await old.health()).sessions == 3
    assert not (tmp_path / "b" / SOCKET_NAME).exists() and not (tmp_path / "b" / TOKEN_NAME).exists()
    with pytest.raises(BrowserAway):
        await old.health()
    async with serve(service, place), BrowserClient.at(tmp_path / "b") as new:
        assert (await new.health()).sessions == 3
        # Which is how it is told that the one it knew is away.
        with pytest.raises(BrowserAway):
            await old.health()
        new._metadata = (("palyra-browser-token", "x" * 43),)
        with pytest.raises(NotAdmitted):
            await new.health()
        new._metadata = ()  # type: ignore[assignment]
        with pytest.raises(NotAdmitted):
            await new.health()
    await old.close()
    place.close()
