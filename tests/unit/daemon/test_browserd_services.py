"""The daemon's parts: browsers are ready only where somebody uses them, and all is gone when it ends."""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from fakes.browserd_harness import ANNA, OPERATOR, browserd, settings
from fakes.processes import descendants
from palyra.browser.domain.session_api import ProfilesHead, SessionAsk
from palyra.browser.engine.chromium import BrowserMissing, NetworkServiceDied
from palyra.browser.engine.process_tree import StartFailed
from palyra.browser.service.access import SOCKET_FOLDER
from palyra.browser.service.client import BrowserClient
from palyra.config.state_dir import StateDir
from palyra.daemon.browserd import BrowserdServices, BrowserStarts


@pytest.mark.promise("P-limits")
async def test_browsers_wait_only_where_sessions_are_opened(tmp_path: Path) -> None:
    before = descendants(os.getpid())
    async with browserd(tmp_path) as harness:
        assert harness.parts.pool.ready == 0 and not (tmp_path / "state" / "browser" / "used").exists()
        session = await harness.open(ANNA)
        async with harness.until(60):
            while harness.parts.pool.ready < 1:
                await harness.turn()
        await harness.client.close_session(ANNA, session.session_id)
    async with browserd(tmp_path) as harness:
        async with harness.until(60):
            while harness.parts.pool.ready < 1:
                await harness.turn()
        assert harness.parts.health().product.startswith("HeadlessChrome/")
    assert descendants(os.getpid()) <= before
    assert list((tmp_path / "state" / "browser" / "processes").iterdir()) == []


@pytest.mark.promise("P-browser-profile")
async def test_who_follows_the_profiles_hears_what_the_last_sessions_saved(tmp_path: Path) -> None:
    parts = BrowserdServices(settings(ready=0), state := StateDir.open(tmp_path / "state"), environ={})
    async with AsyncExitStack() as daemon:
        await daemon.enter_async_context(parts.running())
        async with BrowserClient.at(state.path(SOCKET_FOLDER)) as client:
            profile = await client.create_profile(ANNA, "work")
            heads = client.follow_profiles(OPERATOR, ProfilesHead())
            before = await anext(heads)
            await client.create_session(ANNA, SessionAsk(profile_id=profile.profile_id))
            await daemon.aclose()
            # Told before the connection ended, and then that there is no more.
            (after,) = [head async for head in heads]
    assert after.generation == before.generation + 1
    async with browserd(tmp_path) as harness:
        heads = harness.client.follow_profiles(OPERATOR, after)
        assert await anext(heads) == after
        assert [each.revision for each in await harness.client.profiles(ANNA)] == [1]


async def test_a_browser_that_dies_while_it_starts_is_tried_once_more(caplog: pytest.LogCaptureFixture) -> None:
    class Launcher:
        failures: ClassVar[list[Exception]] = []

        async def start(self, prepare: object) -> Any:
            if self.failures:
                raise self.failures.pop()
            return SimpleNamespace(product="Chromium")

    launcher: Any = Launcher()
    start = BrowserStarts(launcher)
    launcher.failures[:] = [NetworkServiceDied("it ended")]
    assert (await start()).product == start.product == "Chromium"
    launcher.failures[:] = [StartFailed("no"), NetworkServiceDied("it ended")]
    with pytest.raises(StartFailed):
        await start()
    # What another try would not mend is not tried again.
    launcher.failures[:] = [BrowserMissing("no"), BrowserMissing("none")]
    with pytest.raises(BrowserMissing, match="none"):
        await start()
    assert launcher.failures
