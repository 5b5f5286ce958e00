"""The daemon's parts: browsers are ready only where somebody uses them, and all is gone when it ends."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from fakes.browserd_house import ANNA, browserd
from fakes.processes import descendants
from palyra.browser.chromium_process import NetworkServiceDied
from palyra.browser.host_layout import BrowserMissing
from palyra.browser.process_tree import StartFailed
from palyra.daemons.browserd_parts import BrowserStarts


async def test_browsers_wait_only_where_sessions_are_opened(tmp_path: Path) -> None:
    before = descendants(os.getpid())
    async with browserd(tmp_path) as house:
        assert house.parts.pool.ready == 0 and not (tmp_path / "state" / "browser" / "used").exists()
        session = await house.open(ANNA)
        async with house.until(60):
            while house.parts.pool.ready < 1:
                await house.turn()
        await house.client.close_session(ANNA, session.session_id)
    async with browserd(tmp_path) as house:
        async with house.until(60):
            while house.parts.pool.ready < 1:
                await house.turn()
        assert house.parts.health().product.startswith("HeadlessChrome/")
    assert descendants(os.getpid()) <= before
    assert list((tmp_path / "state" / "browser" / "processes").iterdir()) == []


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
