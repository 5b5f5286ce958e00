"""Browsers kept ready; plain values stand in for them here, real ones in the security tests."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fakes.eventually import eventually
from palyra.browser.domain import limits
from palyra.browser.engine.prewarm import BadPoolSize, PoolClosed, ProcessPool
from palyra.browser.engine.process_tree import StartFailed


class Browser:
    def __init__(self, number: int) -> None:
        self.number = number
        self.ended = asyncio.Event()
        self.closed = 0

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    async def close(self, *, graceful: bool) -> bool:
        self.closed += 1
        self.ended.set()
        return graceful


class GatewayHarness:
    def __init__(self) -> None:
        self.made: list[Browser] = []
        self.failures = 0
        self.hold: asyncio.Event | None = None

    async def start(self) -> Browser:
        if self.hold is not None:
            await self.hold.wait()
        if self.failures:
            self.failures -= 1
            raise StartFailed("for the test")
        browser = Browser(len(self.made))
        self.made.append(browser)
        return browser


@pytest.fixture
def harness() -> GatewayHarness:
    return GatewayHarness()


@pytest.fixture
async def pool(harness: GatewayHarness) -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(harness.start, ready=2)
    pool.fill()
    yield pool
    await pool.close()


async def test_as_many_as_wanted_are_ready_and_replaced_when_taken(harness: GatewayHarness, pool: ProcessPool) -> None:
    await eventually(lambda: pool.ready == 2)
    taken = await pool.take()
    assert taken is harness.made[0]
    await eventually(lambda: pool.ready == 2)
    assert len(harness.made) == 3


async def test_none_is_given_out_twice(harness: GatewayHarness, pool: ProcessPool) -> None:
    taken = [await pool.take() for _ in range(20)]
    assert len({id(each) for each in taken}) == 20
    taken += await asyncio.gather(*(pool.take() for _ in range(20)))
    assert len({each.number for each in taken}) == 40
    await pool.close()
    # Those that were taken are their takers'; the rest is ended, each once.
    assert all(each.closed == (each not in taken) for each in harness.made)


async def test_a_spare_that_died_is_not_given_out_and_replaced(harness: GatewayHarness, pool: ProcessPool) -> None:
    await eventually(lambda: pool.ready == 2)
    harness.made[0].ended.set()
    await eventually(lambda: pool.ready == 2)
    assert (await pool.take()).number == 1
    await eventually(lambda: harness.made[0].closed == 1)


async def test_trouble_with_starting_is_told_to_who_takes_and_passes(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RETRY_SECONDS", 0.001)
    harness.failures = 3
    pool = ProcessPool(harness.start, ready=1)
    with pytest.raises(StartFailed):
        await pool.take()
    pool.fill()
    pool.fill()
    await eventually(lambda: pool.ready == 1)
    await pool.close()


async def test_a_closed_pool_gives_out_nothing_and_leaves_nothing(harness: GatewayHarness, pool: ProcessPool) -> None:
    await eventually(lambda: pool.ready == 2)
    await pool.close()
    await pool.close()
    with pytest.raises(PoolClosed):
        await pool.take()
    pool.fill()
    assert all(each.closed == 1 for each in harness.made)


async def test_closing_while_one_is_started(harness: GatewayHarness) -> None:
    harness.hold = asyncio.Event()
    pool = ProcessPool(harness.start, ready=1)
    pool.fill()
    await asyncio.sleep(0)
    await pool.close()
    assert harness.made == []


@pytest.mark.parametrize("ready", [-1, limits.MAX_READY_PROCESSES + 1])
def test_a_size_that_is_no_pools(harness: GatewayHarness, ready: int) -> None:
    with pytest.raises(BadPoolSize):
        ProcessPool(harness.start, ready=ready)
