"""Work on a thread whose caller is cancelled: it is done and undone before the caller's end."""

import asyncio
import threading

import pytest

from palyra.wasm.process.fork_server import carry_out


async def test_the_result_comes_back_and_is_not_undone() -> None:
    undone: list[int] = []
    assert await carry_out(lambda: 7, undone.append) == 7
    assert undone == []


async def test_a_cancelled_caller_waits_for_the_thread_and_what_it_made_is_undone() -> None:
    begun, go_on, undone = threading.Event(), threading.Event(), list[str]()

    def work() -> str:
        begun.set()
        assert go_on.wait(60)
        return "made"

    waiting = asyncio.create_task(carry_out(work, undone.append))
    await asyncio.to_thread(begun.wait, 60)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done() and undone == []
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert undone == ["made"]


async def test_a_failure_is_told_and_undoes_nothing() -> None:
    def work() -> int:
        raise OSError(5, "no")

    with pytest.raises(OSError, match="no"):
        await carry_out(work, lambda _: pytest.fail("there is nothing to undo"))
