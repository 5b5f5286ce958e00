import asyncio

import pytest

from palyra.time_limit import time_limit


async def test_what_ends_in_time_is_left_alone():
    with time_limit(60):
        assert await asyncio.sleep(0, "done") == "done"
    await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0


async def test_what_takes_longer_is_cancelled_where_it_waits():
    where = []
    with pytest.raises(TimeoutError), time_limit(0.01):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            where.append("cancelled")
            raise
    assert where == ["cancelled"] and asyncio.current_task().cancelling() == 0


async def test_a_cancellation_from_elsewhere_stays_one():
    async def work():
        with time_limit(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_both_at_once_is_a_cancellation():
    async def work():
        with time_limit(0):
            task.cancel()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_inner_limit_is_not_the_outer_ones():
    with time_limit(60):
        with pytest.raises(TimeoutError), time_limit(0.001):
            await asyncio.Event().wait()
        assert await asyncio.sleep(0, "goes on") == "goes on"


async def test_an_error_of_the_work_comes_out_as_it_is():
    with pytest.raises(ZeroDivisionError), time_limit(0.001):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            1 / 0  # noqa: B018
    assert asyncio.current_task().cancelling() == 0


def test_it_needs_a_task():
    with pytest.raises(RuntimeError), time_limit(1):
        pass
