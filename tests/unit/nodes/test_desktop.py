"""Programs of the desktop: real processes."""

import asyncio
import threading
from pathlib import Path

import pytest

from fakes.eventually import eventually
from palyra.nodes import limits
from palyra.nodes.agent.capabilities import find_notifier, find_opener, run_desktop
from palyra.nodes.agent.messages import CapabilityFailed, UnsupportedHere


def test_what_is_configured_wins_and_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_opener(("my", "opener")) == ("my", "opener") and find_notifier(("n",)) == ("n",)
    with pytest.raises(UnsupportedHere):
        find_opener(())
    assert find_notifier(()) is None
    for name in ("xdg-open", "notify-send"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find_opener(()) == (str(tmp_path / "xdg-open"),)
    assert find_notifier(()) == (str(tmp_path / "notify-send"), "--app-name=Palyra", "--")


async def test_words_arrive_as_they_are(tmp_path: Path) -> None:
    script = tmp_path / "opener"
    script.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/got\n')
    script.chmod(0o755)
    await run_desktop((str(script), "fixed"), "a b; $(id)", "--x")
    assert (tmp_path / "got").read_text() == "fixed|a b; $(id)|--x|"


async def test_failing_missing_and_lasting_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CapabilityFailed, match="status 1"):
        await run_desktop(("/bin/false",))
    with pytest.raises(UnsupportedHere):
        await run_desktop(("/nonexistent/program",))
    monkeypatch.setattr(limits, "DESKTOP_SECONDS", 0.05)
    await run_desktop(("/bin/sleep", "0.2"))
    # It was let go, and its end is still awaited by a thread of the event loop's.
    await eventually(lambda: not [each for each in threading.enumerate() if "waitpid" in each.name])


async def test_a_cancelled_one_is_ended() -> None:
    work = asyncio.create_task(run_desktop(("/bin/sleep", "60")))
    await asyncio.sleep(0.1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
