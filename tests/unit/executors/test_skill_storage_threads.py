"""A skill that waits for its own storage keeps nobody else waiting."""

import asyncio
import threading

import pytest

from palyra.executors.wasm.skill_storage import MAX_STORAGE_THREADS, StorageThreads


async def test_one_skill_has_one_thread_and_the_others_have_theirs() -> None:
    threads, release, at_work = StorageThreads(), threading.Event(), []

    def stuck() -> str:
        at_work.append(threading.get_ident())
        release.wait(20)
        return "stuck"

    greedy = [asyncio.create_task(threads.run("greedy", stuck)) for _ in range(3 * MAX_STORAGE_THREADS)]
    await asyncio.sleep(0.05)
    assert len(at_work) == 1
    assert await threads.run("other", lambda: "done") == "done"
    assert await asyncio.to_thread(lambda: "the daemon's own threads are free") != ""
    release.set()
    assert set(await asyncio.gather(*greedy)) == {"stuck"}


async def test_who_waits_no_longer_gives_up_its_turn_when_its_work_is_done() -> None:
    threads, release, begun = StorageThreads(), threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        release.wait(20)
        raise OSError("the disk is gone")

    given_up = asyncio.create_task(threads.run("a", stuck))
    await asyncio.to_thread(begun.wait, 20)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    waiting = asyncio.create_task(threads.run("a", lambda: "mine"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    release.set()
    assert await waiting == "mine"


async def test_what_goes_wrong_is_told_to_whoever_waits() -> None:
    def wrong() -> None:
        raise OSError("the disk is gone")

    threads = StorageThreads()
    with pytest.raises(OSError, match="the disk is gone"):
        await threads.run("a", wrong)
    assert await threads.run("a", lambda: 1) == 1
