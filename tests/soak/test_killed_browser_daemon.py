"""The browser daemon killed again and again, in the middle of whatever it does: five seconds later nothing is left.

Run with `make soak-tests`, on a machine that has nothing else to do: the five seconds are asserted here.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.processes import descendants
from palyra.browser.domain.session_api import Caller, SessionAsk
from palyra.browser.engine.process_inspection import start_time
from palyra.browser.service.access import SOCKET_FOLDER
from palyra.browser.service.client import BrowserClient
from palyra.errors import PalyraError

ROUNDS = 20
PROMISED_SECONDS = 5.0
ANNA = Caller(principal="agent:anna")
# Kills fall into the start of a spare, of a session, and into a session that runs.
MOMENTS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


def left_behind(since: int) -> set[int]:
    """Orphans that began after then and look like a browser's: bubblewrap's own processes, and Chromium's."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
                began = start_time(int(name))
                if b"chromium" in words and parent == "1" and began is not None and began >= since:
                    found.add(int(name))
    return found


@pytest.mark.promise("P-browser-ends")
@pytest.mark.soak
async def test_a_daemon_that_is_killed_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    words = [sys.executable, "-m", "palyra.cli.browserd", "--state-dir", str(state), "--json"]
    environment = {**os.environ, "PALYRA_BROWSER__READY": "2"}
    took = []
    for number in range(ROUNDS):
        with subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as daemon:
            assert daemon.stdout is not None
            assert json.loads(await asyncio.to_thread(daemon.stdout.readline))["ok"]
            # What the daemon before this one left was collected before it said that it is ready.
            assert list((state / "browser" / "sessions").iterdir()) == []
            since = start_time(daemon.pid)
            assert since is not None
            opening = asyncio.create_task(opened(state))
            await asyncio.sleep(MOMENTS[number % len(MOMENTS)])
            processes = {pid: start_time(pid) for pid in descendants(daemon.pid)}
            daemon.kill()
            daemon.wait()
            killed = time.monotonic()
            while [pid for pid, began in processes.items() if start_time(pid) == began] or left_behind(since):
                assert time.monotonic() - killed < PROMISED_SECONDS, left_behind(since)
                await asyncio.sleep(0.01)
            took.append(round(time.monotonic() - killed, 3))
            await opening
    print({"seconds": sorted(took)})


async def opened(state: Path) -> None:
    """A session, if there is still somebody to open it."""
    with contextlib.suppress(PalyraError, OSError):
        async with BrowserClient.at(state / SOCKET_FOLDER) as client:
            await client.create_session(ANNA, SessionAsk())
