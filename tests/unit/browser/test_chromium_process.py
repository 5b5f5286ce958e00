"""The end of a real browser, in each way in which it can end."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fakes.browser_engine import attach, evaluate, launching
from fakes.processes import own_descriptors
from palyra.browser.domain.limits import GUARD_PORT, FolderSizes
from palyra.browser.engine.cdp_connection import BrowserEnded
from palyra.browser.engine.chromium import ChromiumLauncher, GuardTaken, NetworkServiceDied
from palyra.browser.engine.isolation_layers import BROWSER, NETWORK_SERVICE, RENDERER
from palyra.browser.engine.process_inspection import descendants, inspect_isolation, inspect_process, start_time


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[ChromiumLauncher]:
    async with launching(tmp_path / "notes") as launcher:
        yield launcher


def pids_of(first: int, kind: str) -> list[int]:
    seen = [inspect_process(pid) for pid in descendants(first)]
    return [each.pid for each in seen if each is not None and each.kind == kind]


def alive(processes: dict[int, int | None]) -> list[int]:
    return [pid for pid, started in processes.items() if started is not None and start_time(pid) == started]


async def test_all_its_processes_are_gone_when_it_is_closed(launcher: ChromiumLauncher) -> None:
    process = await launcher.start()
    processes = {pid: start_time(pid) for pid in descendants(process.pid)}
    assert len(processes) > 5
    closes = await asyncio.gather(process.close(graceful=False), process.close(graceful=True))
    assert closes == [False, False]
    assert alive(processes) == []
    assert process.ended.is_set() and not process.alive
    with pytest.raises(BrowserEnded):
        await process.cdp.send("Browser.getVersion")


async def test_the_guard_is_served_by_one_and_closed_by_that_one(launcher: ChromiumLauncher) -> None:
    process = await launcher.start()
    guard = process.take_guard()
    with pytest.raises(GuardTaken):
        process.take_guard()
    await process.close(graceful=False)
    assert guard.getsockname() == ("127.0.0.1", GUARD_PORT)
    guard.close()


async def test_an_archive_is_made_of_a_whole_profile_only(launcher: ChromiumLauncher) -> None:
    archived: list[list[str]] = []

    async def archive(profile: Path) -> None:
        archived.append(sorted(path.name for path in profile.iterdir()))

    process = await launcher.start()
    assert not await process.close(graceful=False, archive=archive)
    assert archived == []
    process = await launcher.start()
    assert await process.close(graceful=True, archive=archive)
    assert len(archived) == 1 and "Default" in archived[0]
    # The cache is elsewhere, and not kept.
    assert "Cache" not in archived[0]


async def test_a_failed_archive_leaves_nothing_open(launcher: ChromiumLauncher) -> None:
    async def archive(profile: Path) -> None:
        raise OSError("the disk is full")

    process = await launcher.start()
    await process.close(graceful=False)
    before = own_descriptors()
    process = await launcher.start()
    with pytest.raises(OSError, match="the disk is full"):
        await process.close(graceful=True, archive=archive)
    assert own_descriptors() == before


@pytest.mark.parametrize(
    ("kind", "error"), [(NETWORK_SERVICE, NetworkServiceDied), (BROWSER, BrowserEnded)], ids=["network", "browser"]
)
async def test_a_killed_part_ends_the_whole_with_a_code(
    launcher: ChromiumLauncher, kind: str, error: type[Exception]
) -> None:
    process = await launcher.start()
    processes = {pid: start_time(pid) for pid in descendants(process.pid)}
    session = await attach(process)
    waiting = asyncio.create_task(evaluate(process, session, "new Promise(() => {})"))
    await evaluate(process, session, "0")
    (killed,) = pids_of(process.pid, kind)
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(BrowserEnded if kind == BROWSER else error):
        await waiting
    async with asyncio.timeout(30):
        await process.ended.wait()
    assert isinstance(process.failure, error)
    assert not await process.close(graceful=True)
    assert alive(processes) == []


async def test_the_network_service_is_known_by_when_it_began_and_not_by_its_words(launcher: ChromiumLauncher) -> None:
    process = await launcher.start()
    seen = inspect_isolation(process.pid, FolderSizes())
    # For a moment of its start it has other words than those that it was seen with.
    others = [msgspec.structs.replace(each, words=("other",)) for each in seen.processes]
    process.unwatch()
    process.watch(msgspec.structs.replace(seen, processes=tuple(others)))
    later = [msgspec.structs.replace(each, started=each.started + 1) for each in seen.processes]
    with pytest.raises(NetworkServiceDied):
        process.watch(msgspec.structs.replace(seen, processes=tuple(later)))
    await process.close(graceful=False)


async def test_a_page_that_crashes_does_not_end_the_browser(launcher: ChromiumLauncher) -> None:
    process = await launcher.start()
    crashed = asyncio.Event()
    session = await attach(process)
    process.cdp.subscribe(session, lambda event: crashed.set() if event.method == "Inspector.targetCrashed" else None)
    await process.cdp.send("Inspector.enable", {}, session)
    # One of them may be a spare for the next page.
    for pid in pids_of(process.pid, RENDERER):
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(30):
        await crashed.wait()
    assert process.alive
    assert await process.cdp.send("Target.createTarget", {"url": "about:blank"})
    assert await process.close(graceful=True)
