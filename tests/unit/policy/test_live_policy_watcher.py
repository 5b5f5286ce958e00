"""Changes are told, also of a directory that comes later or goes away."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from palyra.policy import live_policy
from palyra.policy.live_policy import watch_directory


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_policy, "WATCH_DEBOUNCE_MS", 50)
    monkeypatch.setattr(live_policy, "WATCH_RECHECK_MS", 100)


class Watch:
    """Counts what a watcher tells, and lets a test wait for the next."""

    def __init__(self, path: Path) -> None:
        self._noticed = asyncio.Event()
        self._stream: AsyncIterator[None] = watch_directory(path)
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for _ in self._stream:
            self._noticed.set()

    async def tells(self, change: object) -> None:
        """Repeats the change until it is told: the watch may only just be starting."""
        assert callable(change)
        self._noticed.clear()
        async with asyncio.timeout(60):
            while not self._noticed.is_set():
                change()
                try:
                    await asyncio.wait_for(self._noticed.wait(), 1)
                except TimeoutError:
                    continue

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[Watch]:
    watching = Watch(tmp_path / "policies")
    yield watching
    await watching.stop()


async def test_the_life_of_a_directory(watch: Watch, tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    written = iter(range(1000))

    def edit() -> None:
        (folder / "x.cedar").write_text(f"// {next(written)}")

    await watch.tells(lambda: folder.mkdir(exist_ok=True))
    await watch.tells(edit)
    await watch.tells(lambda: shutil.rmtree(folder, ignore_errors=True))
    await watch.tells(lambda: folder.mkdir(exist_ok=True))
    await watch.tells(edit)


async def test_what_changes_while_the_watch_is_being_set_up_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    real, noticed = watchfiles.awatch, asyncio.Event()

    def just_before(*args: Any, **options: Any) -> Any:
        (folder / "x.cedar").write_text("// a forbid that must hold")
        noticed.clear()
        return real(*args, **options)

    monkeypatch.setattr(watchfiles, "awatch", just_before)

    async def follow() -> None:
        async for _ in watch_directory(folder):
            noticed.set()

    async with asyncio.timeout(60):
        following = asyncio.create_task(follow())
        await noticed.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_directory_swapped_for_another_is_noticed(watch: Watch, tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    await watch.tells(lambda: folder.mkdir(exist_ok=True))
    generation = iter(range(1000))

    def swap() -> None:
        fresh = tmp_path / f"new{next(generation)}"
        fresh.mkdir()
        folder.rename(tmp_path / f"old{next(generation)}")
        fresh.rename(folder)

    await watch.tells(swap)
    await watch.tells(lambda: (folder / "y.cedar").write_text(f"// {next(generation)}"))
