"""The wait for the next certificate: by the wall clock, however it is set, or at once when the daemon asks."""

import asyncio

import pytest

from fakes.node_server_harness import MovedClock
from palyra.devicelink.agent import channel
from palyra.devicelink.agent.channel import wait_for_renewal

FAR_MS = 3_600_000


async def test_what_is_due_does_not_wait() -> None:
    clock = MovedClock()
    await asyncio.wait_for(wait_for_renewal(clock.now_ms() - 1, asyncio.Event(), clock), 20)


async def test_the_daemon_can_ask_before_it_is_due() -> None:
    clock, renew_now = MovedClock(), asyncio.Event()
    waiting = asyncio.create_task(wait_for_renewal(clock.now_ms() + FAR_MS, renew_now, clock))
    await asyncio.sleep(0)
    assert not waiting.done()
    renew_now.set()
    await asyncio.wait_for(waiting, 20)


async def test_a_clock_that_is_set_forward_meanwhile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "RENEWAL_CHECK_SECONDS", 0.01)
    clock = MovedClock()
    waiting = asyncio.create_task(wait_for_renewal(clock.now_ms() + FAR_MS, asyncio.Event(), clock))
    await asyncio.sleep(0.03)
    assert not waiting.done()
    clock.ahead_ms += FAR_MS
    await asyncio.wait_for(waiting, 20)
