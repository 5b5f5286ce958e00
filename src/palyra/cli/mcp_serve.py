"""The stdio side of ``palyra mcp``: finds the daemon or starts one, then carries messages."""

import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palyra.cli.invocation import Invocation
from palyra.client.local import LocalDaemon, NoDaemon, find_daemon
from palyra.errors import InvalidInput, Unavailable
from palyra.secret import Secret

if TYPE_CHECKING:
    from palyra.mcp.client_config import Launch, Remote

DEFAULT_PRINCIPAL: Final = "agent:mcp"
LOG_FILE: Final = "mcp-daemon.log"
# A daemon starts in a second; on a machine that is busy with everything else, in ten.
START_SECONDS: Final = 60.0
# Another client may be starting one at this very moment.
LOOK_AGAIN_SECONDS: Final = 0.02


class DaemonNotStarted(Unavailable):
    code = "mcp.daemon_not_started"
    hint = "the log file says why; `palyra up` starts one in the foreground"


class TokenMissing(InvalidInput):
    code = "mcp.token_missing"
    hint = "put the token that `palyra token create` printed into the variable PALYRA_TOKEN"


def serve_stdio(invocation: Invocation, principal: str | None, url: str | None, token: str | None) -> None:
    """With a token of its own a client speaks for that token's principal; the owner speaks for the one named."""
    if url is not None and token is None:
        # The owner's token is for the owner's own daemon, and is not sent to an address somebody named.
        raise TokenMissing(f"no token for {url}")
    finding = None if url is not None else DaemonSearch(invocation)
    # Beside a daemon that starts, if one has to.
    from palyra.mcp.stdio_relay import StdioRelay

    if finding is None:
        relay = StdioRelay(url or "", Secret(token or ""), principal)
    else:
        daemon = finding.found()
        speaks_for = principal if token is not None else principal or DEFAULT_PRINCIPAL
        relay = StdioRelay(daemon.url, daemon.token if token is None else Secret(token), speaks_for)
    relay.run()


class DaemonSearch:
    """The daemon of this state directory. Where none runs, one is started at once, and waited for by ``found``."""

    def __init__(self, invocation: Invocation) -> None:
        self._state = invocation.state_path
        self._started: subprocess.Popen[bytes] | None = None
        self._daemon: LocalDaemon | None = None
        try:
            self._daemon = find_daemon(self._state)
        except NoDaemon:
            self._log = invocation.state_dir.path(LOG_FILE)
            self._started = _start(self._log, _options(invocation))

    def found(self) -> LocalDaemon:
        if self._daemon is not None:
            return self._daemon
        deadline = time.monotonic() + START_SECONDS
        assert self._started is not None and self._started.stdout is not None
        # It says one thing, when it answers; if it ends before, that is told by the end of the pipe.
        with self._started.stdout as announced:
            select.select([announced], [], [], START_SECONDS)
        while True:
            try:
                return find_daemon(self._state)
            except NoDaemon:
                if time.monotonic() > deadline or not self._somebody_starts():
                    raise DaemonNotStarted(f"no daemon came up; see {self._log}") from None
                time.sleep(LOOK_AGAIN_SECONDS)

    def _somebody_starts(self) -> bool:
        """Ours, or the one that another client started at the same moment, which has the lock that ours did not get."""
        from palyra.daemons.instances import LOCK_FILE, HeldLock

        if self._started is not None and self._started.poll() is None:
            return True
        try:
            HeldLock.take(self._state / LOCK_FILE).release(remove=False)
        except BlockingIOError:
            return True
        return False


def _start(log: Path, options: list[str]) -> "subprocess.Popen[bytes]":
    """A daemon of its own session, which outlives this program for as long as another agent uses it."""
    with log.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "palyra.cli.main", *options, "up", "--port", "0", "--for-agents"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )


def how_to_connect(invocation: Invocation, principal: str, *, http: bool) -> "Launch | Remote":
    from palyra.mcp.client_config import Launch, Remote

    if http:
        return Remote(url=f"{_address(invocation)}/mcp")
    program = Path(sys.argv[0]).absolute()
    own = program.name == "palyra" and program.exists()
    start = (str(program),) if own else (sys.executable, "-m", "palyra.cli.main")
    return Launch(command=start[0], args=(*start[1:], *_options(invocation), "mcp", "--principal", principal))


def _address(invocation: Invocation) -> str:
    try:
        return find_daemon(invocation.state_path).url
    except NoDaemon:
        settings = invocation.settings.daemon
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        return f"http://{host}:{settings.port}"


def _options(invocation: Invocation) -> list[str]:
    """The places this invocation was told to use, for a program that is started elsewhere."""
    words: list[str] = []
    if invocation.config_option is not None:
        words += ["--config", str(Path(invocation.config_option).absolute())]
    if invocation.state_dir_option is not None:
        words += ["--state-dir", str(Path(invocation.state_dir_option).absolute())]
    return words
