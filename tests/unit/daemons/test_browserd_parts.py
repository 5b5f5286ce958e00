"""The daemon's parts: browsers are ready only where somebody uses them, and all is gone when it ends."""

import os
from pathlib import Path

from fakes.browserd_house import ANNA, browserd
from fakes.processes import descendants


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
