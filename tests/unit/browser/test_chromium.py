"""Starting a real Chromium, and every way in which it does not start."""

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.browser_engine import NamespaceGuard, attach, evaluate, launching
from fakes.processes import own_descriptors
from palyra.browser.domain import limits
from palyra.browser.engine import chromium
from palyra.browser.engine.chromium import (
    BrowserMissing,
    ChromiumLauncher,
    ChromiumSettings,
    NetworkServiceDied,
    find_layout,
)
from palyra.browser.engine.isolation_layers import IsolationDown, IsolationLayer
from palyra.browser.engine.launch_plan import ChromiumPlan, PlanLine, chromium_plan
from palyra.browser.engine.process_tree import ProcessNotes, StartFailed


@pytest.fixture
def bin_folder() -> Iterator[Path]:
    """One that the browser's account may pass, and all that the sandbox sees of the test's."""
    with tempfile.TemporaryDirectory(prefix="palyra-browser-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def program(folder: Path, script: str) -> str:
    """A stand-in for Chromium."""
    path = folder / "chromium"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


REAL = find_layout().chromium


async def test_a_browser_whose_every_fence_was_seen(tmp_path: Path) -> None:
    before = own_descriptors()
    async with launching(tmp_path / "notes") as launcher:
        process = await launcher.start()
        assert process.receipt.held, process.receipt
        assert process.receipt.line(IsolationLayer.OWN_SANDBOX).got == "Seccomp: 2"
        assert process.product.startswith("HeadlessChrome/")
        assert len(list((tmp_path / "notes").iterdir())) == 1
        session = await attach(process)
        assert await evaluate(process, session, "'half a pair: ' + '\\ud83d'") == "half a pair: \ufffd"
        assert await process.close(graceful=True)
        assert not list((tmp_path / "notes").iterdir())
    assert own_descriptors() == before


async def test_a_profile_that_was_prepared_is_there_when_chromium_begins(tmp_path: Path) -> None:
    kept: dict[str, bytes] = {}

    async def archive(profile: Path) -> None:
        kept.update({path.name: path.read_bytes() for path in profile.iterdir() if path.is_file()})

    def prepare(profile: Path) -> None:
        (profile / "marker").write_bytes(b"from the last session")

    async with launching(tmp_path / "notes") as launcher:
        process = await launcher.start(prepare)
        assert await process.close(graceful=True, archive=archive)
    assert kept["marker"] == b"from the last session"
    assert not process.files.profile.exists()


async def test_chromium_that_ends_at_once_is_told_with_what_it_said(tmp_path: Path, bin_folder: Path) -> None:
    before = own_descriptors()
    settings = ChromiumSettings(binary=program(bin_folder, "echo No usable sandbox >&2; exit 1"))
    async with launching(tmp_path / "notes", settings) as launcher:
        with pytest.raises(StartFailed) as failed:
            await launcher.start()
    assert "No usable sandbox" in failed.value.details["said"]
    assert not list((tmp_path / "notes").iterdir())
    assert own_descriptors() == before


async def test_chromium_that_says_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "START_SECONDS", 1.0)
    settings = ChromiumSettings(binary=program(bin_folder, "read -r x <&3"))
    async with launching(tmp_path / "notes", settings) as launcher:
        with pytest.raises(StartFailed, match="was not"):
            await launcher.start()


async def test_without_its_own_sandbox_it_runs_only_where_that_is_allowed(tmp_path: Path, bin_folder: Path) -> None:
    """The program behaves as Chromium does where no user namespace can be made."""
    script = f'case "$*" in *--no-sandbox*) exec {REAL} "$@";; esac; echo No usable sandbox >&2; exit 1'
    binary = program(bin_folder, script)
    async with launching(tmp_path / "notes", ChromiumSettings(binary=binary)) as launcher:
        with pytest.raises(StartFailed):
            await launcher.start()
    async with launching(tmp_path / "notes", ChromiumSettings(binary=binary, allow_no_sandbox=True)) as launcher:
        process = await launcher.start()
        assert process.receipt.waived == (IsolationLayer.OWN_SANDBOX,)
        assert not process.receipt.held
        assert "browser.allow_no_sandbox" in process.receipt.line(IsolationLayer.OWN_SANDBOX).got
        assert [line.fence for line in process.receipt.lines if not line.held] == [IsolationLayer.OWN_SANDBOX]
        await process.close(graceful=False)


async def test_other_trouble_is_no_reason_to_go_without_a_sandbox(tmp_path: Path, bin_folder: Path) -> None:
    binary = program(bin_folder, 'echo "other trouble; $*" >&2; exit 1')
    async with launching(tmp_path / "notes", ChromiumSettings(binary=binary, allow_no_sandbox=True)) as launcher:
        with pytest.raises(StartFailed) as failed:
            await launcher.start()
    assert "other trouble" in failed.value.details["said"]
    assert "--no-sandbox" not in failed.value.details["said"]


async def test_where_no_user_namespace_can_be_made_chromium_says_what_we_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are Chromium's own and could change: this is the real one without the means for its sandbox."""
    monkeypatch.setattr(chromium, "chromium_plan", without_user_namespaces)
    async with launching(tmp_path / "notes", ChromiumSettings(allow_no_sandbox=True)) as launcher:
        process = await launcher.start()
        assert process.receipt.waived == (IsolationLayer.OWN_SANDBOX,)
        await process.close(graceful=False)
    async with launching(tmp_path / "notes") as launcher:
        with pytest.raises(StartFailed) as failed:
            await launcher.start()
    assert "No usable sandbox" in failed.value.details["said"]


def without_user_namespaces(*words: Any, **options: Any) -> ChromiumPlan:
    plan = chromium_plan(*words, **options)
    at = next(number for number, line in enumerate(plan.lines) if line.words == ("--unshare-user",))
    added = PlanLine("for the test", ("--disable-userns",))
    return msgspec.structs.replace(plan, lines=(*plan.lines[: at + 1], added, *plan.lines[at + 1 :]))


async def test_one_that_is_started_without_its_sandbox_behind_our_back_is_refused(
    tmp_path: Path, bin_folder: Path
) -> None:
    settings = ChromiumSettings(binary=program(bin_folder, f'exec {REAL} "$@" --no-sandbox'))
    async with launching(tmp_path / "notes", settings) as launcher:
        with pytest.raises(IsolationDown) as down:
            await launcher.start()
    assert down.value.details["fences"] == [IsolationLayer.OWN_SANDBOX]


async def test_one_whose_proxy_was_changed_is_refused(tmp_path: Path, bin_folder: Path) -> None:
    settings = ChromiumSettings(binary=program(bin_folder, f'exec {REAL} "$@" --proxy-server=direct://'))
    async with launching(tmp_path / "notes", settings) as launcher:
        with pytest.raises(IsolationDown) as down:
            await launcher.start()
    assert down.value.details["fences"] == [IsolationLayer.FLAGS]


async def test_a_guard_that_listens_elsewhere_is_refused(tmp_path: Path) -> None:
    class Elsewhere(NamespaceGuard):
        async def open(self, network: int, owner: int, port: int) -> socket.socket:
            return await super().open(network, owner, port + 1)

    guard = Elsewhere()
    launcher = ChromiumLauncher(guard, ProcessNotes(tmp_path / "notes"))
    with pytest.raises(IsolationDown) as down:
        await launcher.start()
    assert down.value.details["fences"] == [IsolationLayer.GUARD]
    await guard.close()


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    before = own_descriptors()
    async with launching(tmp_path / "notes") as launcher:
        for steps in (1, 3, 10, 30):
            starting = asyncio.create_task(launcher.start())
            for _ in range(steps):
                await asyncio.sleep(0.003)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert not list((tmp_path / "notes").iterdir())
    assert own_descriptors() == before


async def test_a_prepare_that_fails_starts_nothing(tmp_path: Path) -> None:
    def prepare(profile: Path) -> None:
        raise NetworkServiceDied("any error of its own")

    async with launching(tmp_path / "notes") as launcher:
        with pytest.raises(NetworkServiceDied):
            await launcher.start(prepare)
    assert not list((tmp_path / "notes").iterdir())


async def test_no_chromium(tmp_path: Path) -> None:
    async with launching(tmp_path / "notes", ChromiumSettings(binary="/nonexistent")) as launcher:
        with pytest.raises(BrowserMissing):
            await launcher.start()
