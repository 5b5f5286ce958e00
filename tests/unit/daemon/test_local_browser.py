"""The browser daemon beside ``palyra up``: there while it runs, started again when it died, and gone with it."""

import json
import os
import signal
from pathlib import Path

import pytest

from fakes.eventually import eventually
from palyra.browser.service.access import SOCKET_FOLDER
from palyra.browser.service.client import BrowserClient
from palyra.config.state_dir import HeldLock, StateDir
from palyra.daemon import browserd_supervisor
from palyra.daemon.browserd_supervisor import LocalBrowser


def pid_of(state: StateDir) -> int:
    try:
        return int(json.loads(state.path("browser/daemon.json").read_text())["pid"])
    except FileNotFoundError:
        return 0


async def up(state: StateDir, besides: int = 0) -> int:
    await eventually(lambda: pid_of(state) not in (0, besides), seconds=60)
    return pid_of(state)


@pytest.mark.promise("P-browser-ends")
async def test_it_is_kept_running_and_ends_with_us(tmp_path: Path) -> None:
    state, said = StateDir.open(tmp_path / "state"), list[str]()
    async with LocalBrowser(state, config=None, say=said.append).running():
        first = await up(state)
        async with LocalBrowser(state, config=None, say=said.append).running():
            await eventually(lambda: said)
        assert "runs in this state directory already" in said.pop()
        os.kill(first, signal.SIGKILL)
        second = await up(state, besides=first)
        async with BrowserClient.at(state.path(SOCKET_FOLDER)) as client:
            assert (await client.health()).status == "ok"
    assert not Path(f"/proc/{second}").exists()
    assert "status -9" in said[0] and state.path("browserd.log").stat().st_mode & 0o777 == 0o600


async def test_the_one_of_a_daemon_that_was_killed_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a moment to see that it is alone, and the next daemon may be there before that."""
    state, said = StateDir.open(tmp_path / "state"), list[str]()
    monkeypatch.setattr(browserd_supervisor, "RESTART_SECONDS", 0.05)
    state.path("browser").mkdir(mode=0o700)
    left = HeldLock.take(state.path(browserd_supervisor.LOCK_FILE))
    async with LocalBrowser(state, config=None, say=said.append).running():
        await eventually(lambda: said)
        assert "runs in this state directory already" in said[0]
        left.release(remove=False)
        await up(state)
        async with BrowserClient.at(state.path(SOCKET_FOLDER)) as client:
            assert (await client.health()).status == "ok"
    assert len(said) == 1


async def test_one_that_cannot_stay_up_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, said = StateDir.open(tmp_path / "state"), list[str]()
    bad = tmp_path / "bad.toml"
    bad.write_text("[browser]\nready = 99\n")
    keeping = LocalBrowser(state, config=bad, say=said.append)
    monkeypatch.setattr(browserd_supervisor, "RESTART_SECONDS", 0.0)
    monkeypatch.setattr(browserd_supervisor, "MAX_STARTS", 2)
    async with keeping.running():
        await eventually(lambda: any("does not stay up" in each for each in said), seconds=60)
    assert len(said) == 3
