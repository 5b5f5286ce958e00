"""A background task that fails is logged, and the tasks end together."""

import asyncio
import logging

import pytest

from palyra.browser.engine.background_tasks import BackgroundTasks
from palyra.errors import Failed


class Broken(Failed):
    code = "test.broken_task"


async def fail(error: Exception) -> None:
    raise error


async def test_failures_are_logged_and_the_other_tasks_end_on_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tasks = BackgroundTasks(logging.getLogger("test"))
    tasks.start(fail(Broken("no page")), "a tab is set up")
    tasks.start(fail(ValueError("odd")), "a frame is set up")
    await tasks.wait()
    assert caplog.messages == ["a tab is set up: no page", "a frame is set up failed"]
    endless = asyncio.Event()
    tasks.start(endless.wait(), "an endless task")
    await asyncio.sleep(0)
    await tasks.cancel()
    await tasks.wait()
