"""One Chromium for all tests of a module that look at pages."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes.page_view import FixtureTab, open_tab


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FixtureTab]:
    async with open_tab(tmp_path_factory.mktemp("notes")) as opened:
        yield opened
