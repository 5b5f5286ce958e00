"""The browser daemon beside ``palyra up``: a child process that ends with it, and is started again when it died."""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from palyra.config.state_dir import HeldLock, StateDir

log = logging.getLogger("palyra.browser")
LOG_FILE: Final = "browserd.log"
# As the browser daemon itself has it, which takes longer to load.
LOCK_FILE: Final = "browser/daemon.lock"
_MODULE: Final = "palyra.cli.browserd"
# Sessions are closed and profiles saved before it ends.
STOP_SECONDS: Final = 45.0
# One that cannot stay up is not tried for ever; one that did for so long was ended by something else than itself.
MAX_STARTS: Final = 5
STAYED_UP_SECONDS: Final = 60.0
RESTART_SECONDS: Final = 2.0


class LocalBrowser:
    def __init__(self, state: StateDir, *, config: Path | None, say: Callable[[str], None]) -> None:
        self._state = state
        self._config = config
        self._say = say
        self._child: subprocess.Popen[bytes] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the browser daemon beside this one, which does not wait for its start."""
        keeping = asyncio.create_task(self._keep(), name="the browser daemon is kept running")
        try:
            yield
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            if self._child is not None:
                await asyncio.to_thread(_stop, self._child)

    async def _keep(self) -> None:
        await self._while_another_runs()
        clock, starts = asyncio.get_running_loop().time, 0
        while starts < MAX_STARTS:
            starts += 1
            began = clock()
            self._child = await asyncio.to_thread(self._spawn)
            # The thread that waits does not keep this process: `_stop` ends what it waits for.
            code = await asyncio.to_thread(self._child.wait)
            _close(self._child)
            self._say(f"the browser daemon ended with status {code}; {self._state.path(LOG_FILE)} says why")
            if clock() - began > STAYED_UP_SECONDS:
                starts = 0
            await asyncio.sleep(RESTART_SECONDS)
        self._say("the browser daemon does not stay up: browser tools are not available")

    async def _while_another_runs(self) -> None:
        """Wait until no other browser daemon holds the lock.

        The browser daemon of a killed daemon lives for a moment longer. Nothing notifies when the lock of another
        process is released, so it is polled.
        """
        announced = False
        while _runs_already(self._state):
            if not announced:
                self._say("a browser daemon runs in this state directory already; it is used as long as it runs")
                announced = True
            await asyncio.sleep(RESTART_SECONDS)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        """Start the program without the event loop.

        The loop forks, and a fork beside gRPC's threads may hang before its program starts.
        """
        words = [sys.executable, "-m", _MODULE, "--state-dir", str(self._state.root), "--until-input-ends"]
        if self._config is not None:
            words += ["--config", str(self._config)]
        with open(self._state.path(LOG_FILE), "ab") as said:
            os.fchmod(said.fileno(), 0o600)
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                # Ctrl-C at the terminal is for the daemon, which ends this one in order.
                start_new_session=True,
            )


def _runs_already(state: StateDir) -> bool:
    try:
        HeldLock.take(state.path(LOCK_FILE)).release(remove=False)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _stop(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("the browser daemon did not end in time: process %d is killed", child.pid)
        child.kill()
        child.wait()
    _close(child)


def _close(child: "subprocess.Popen[bytes]") -> None:
    if child.stdin is not None:
        child.stdin.close()
