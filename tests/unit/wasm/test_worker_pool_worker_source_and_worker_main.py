import asyncio
import os
import signal
import sys

import pytest

from fakes.eventually import eventually
from palyra.wasm.domain.limits import PoolSettings
from palyra.wasm.domain.outcome import Quota
from palyra.wasm.process.fork_server import COMPILER, WORKER, Process, WorkerSource, WorkersUnavailable
from palyra.wasm.process.fork_server_main import COMPILER as SAID_COMPILER
from palyra.wasm.process.fork_server_main import WORKER as SAID_WORKER
from palyra.wasm.process.pool import WorkerPool


@pytest.fixture
async def source():
    made = WorkerSource()
    yield made
    await made.close()


async def _pool(source, max_instances=3, **settings):
    pool = WorkerPool(source, PoolSettings(**({"ready": 1, "computing": 2} | settings)), max_instances)
    await pool.start()
    return pool


def test_both_sides_say_the_same_words():
    assert (WORKER, COMPILER) == (SAID_WORKER, SAID_COMPILER)


async def test_places_are_given_in_order_and_taken_back(source):
    pool = await _pool(source, computing=1)
    first = await pool.take(b"", 5)
    order = []

    async def waiting(number):
        link = await pool.take(b"", 30)
        order.append(number)
        pool.release(link)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(waiting(number))
        await asyncio.sleep(0.01)
        assert order == []
        pool.release(first)
    assert order == [0, 1, 2, 3, 4]
    assert (pool.busy, pool.idle) == (0, 1)
    await pool.close()


async def test_who_waits_too_long_is_told_and_leaves_no_trace(source):
    pool = await _pool(source, computing=1)
    link = await pool.take(b"", 5)
    with pytest.raises(Quota):
        await pool.take(b"", 0.01)
    waiting = asyncio.create_task(pool.take(b"", 30))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    pool.release(link)
    assert pool.busy == 0
    pool.release(await pool.take(b"", 5))
    await pool.close()


async def test_a_guest_that_waits_lets_another_compute_but_never_beyond_the_instances(source):
    pool = await _pool(source, max_instances=2, computing=1)
    first = await pool.take(b"", 5)
    with pool.park():
        second = await pool.take(b"", 5)
        with pool.park(), pytest.raises(Quota):
            await pool.take(b"", 0.01)
        pool.release(second)
    pool.release(first)
    await pool.close()


async def test_a_worker_with_the_module_is_preferred(source):
    pool = await _pool(source)
    one, two = await pool.take(b"", 5), await pool.take(b"", 5)
    one.loaded[b"digest"] = None
    pool.release(one)
    pool.release(two)
    assert await pool.take(b"digest", 5) is one
    pool.release(one)
    await pool.close()


async def test_spare_workers_end_and_dead_ones_are_replaced(source):
    pool = await _pool(source, idle_seconds=0.05)
    links = [await pool.take(b"", 5) for _ in range(2)]
    for link in links:
        pool.release(link)
    await eventually(lambda: pool.idle <= 1)
    link = await pool.take(b"", 5)
    pool.discard(link)
    await eventually(lambda: pool.idle >= 1)
    await pool.close()


async def test_a_program_that_cannot_start_is_told():
    missing = WorkerSource(python="/nonexistent/python")
    with pytest.raises(WorkersUnavailable):
        await missing.make(WORKER)
    ends = WorkerSource(python="/bin/true" if sys.platform == "linux" else sys.executable)
    with pytest.raises(WorkersUnavailable):
        await ends.make(WORKER)
    await ends.close()
    with pytest.raises(WorkersUnavailable, match="closed"):
        await ends.make(WORKER)


async def test_whoever_still_has_a_worker_when_the_pool_is_closed_ends_it(source):
    pool = await _pool(source)
    link = await pool.take(b"", 5)
    await pool.close()
    pool.release(link)
    assert (pool.busy, pool.idle, link.broken) == (0, 0, "closed")


async def test_a_worker_that_gets_ready_after_the_pool_was_closed_is_ended(source):
    pool = WorkerPool(source, PoolSettings(ready=1), 3)
    starting = [asyncio.create_task(pool.start()), asyncio.create_task(pool.take(b"", 30))]
    await asyncio.sleep(0)
    await pool.close()
    for outcome in await asyncio.gather(*starting, return_exceptions=True):
        assert isinstance(outcome, WorkersUnavailable), outcome
    assert (pool.started, pool.busy, pool.idle) == (False, 0, 0)


async def test_a_process_that_was_made_in_the_moment_of_a_cancellation_is_ended(source, monkeypatch):
    ended = []
    monkeypatch.setattr(Process, "kill", lambda self: ended.append("killed"))
    monkeypatch.setattr(Process, "close", lambda self: ended.append("closed"))
    making = asyncio.create_task(source.make(WORKER))
    await eventually(lambda: source._waiting, every=0)
    source._waiting[0].set_result(Process(-1))
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert ended == ["killed", "closed"]


@pytest.mark.parametrize("call_first", [False, True], ids=["before it is asked", "after it was asked"])
async def test_a_worker_is_made_also_when_the_process_that_makes_them_ends_in_that_moment(source, call_first):
    connection, process = await source.make(WORKER)
    connection.close()
    process.close()
    old = source.pid
    assert old is not None
    if call_first:
        os.kill(old, signal.SIGSTOP)
        making = asyncio.create_task(source.make(WORKER))
        await asyncio.sleep(0.05)
        assert not making.done()
        os.kill(old, signal.SIGKILL)
    else:
        os.kill(old, signal.SIGKILL)
        # It is gone, and the loop had no moment yet to hear of it.
        os.waitid(os.P_PID, old, os.WEXITED | os.WNOWAIT)
        making = asyncio.create_task(source.make(WORKER))
    connection, process = await making
    assert source.pid not in (old, None)
    connection.close()
    process.close()
