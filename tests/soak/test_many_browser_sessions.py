"""Thirty browser sessions at once, opened and closed ten times: nothing of them stays. Run with `make soak-tests`."""

import asyncio
import os
from pathlib import Path

import pytest

from fakes.browserd_harness import BrowserdHarness, browserd
from fakes.processes import descendants, own_descriptors, resident_bytes
from palyra.browser.domain.action import Navigate
from palyra.browser.domain.session_api import Caller

SESSIONS, ROUNDS = 30, 10
PRINCIPALS = 6


@pytest.mark.promise("P-browser-ends")
@pytest.mark.soak
async def test_thirty_sessions_ten_times_leave_nothing(tmp_path: Path) -> None:
    async with browserd(tmp_path, ready=0, max_sessions=SESSIONS) as harness:
        await one_round(harness, 2)
        before = (len(descendants(os.getpid())), own_descriptors())
        memory = []
        for _ in range(ROUNDS):
            await one_round(harness, SESSIONS)
            assert (len(descendants(os.getpid())), own_descriptors()) == before
            assert list((tmp_path / "state" / "browser" / "sessions").iterdir()) == []
            assert list((tmp_path / "state" / "browser" / "processes").iterdir()) == []
            memory.append(resident_bytes(os.getpid()))
        # What grows with every round is a leak; the first rounds fill caches.
        assert memory[-1] - memory[ROUNDS // 2] < 32 * 1024 * 1024, memory
        print({"resident": memory})


async def one_round(harness: BrowserdHarness, count: int) -> None:
    async def one(number: int) -> None:
        caller = Caller(principal=f"agent:a{number % PRINCIPALS}")
        session = (await harness.open(caller)).session_id
        outcome = await harness.client.navigate(caller, session, Navigate(url=harness.url("/big?rows=20")))
        assert outcome.status == 200
        open_.append((caller, session))

    open_: list[tuple[Caller, str]] = []
    # In the order of a queue at a busy machine: each waits for its browser no longer than a client does.
    for first in range(0, count, 6):
        await asyncio.gather(*(one(number) for number in range(first, min(first + 6, count))))
    assert len(harness.parts.manager) == count
    await asyncio.gather(*(harness.client.close_session(caller, session) for caller, session in open_))
    assert len(harness.parts.manager) == 0
