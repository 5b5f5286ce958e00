"""The stdio side of ``palyra mcp``: finds the daemon or starts one, then carries messages."""

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
    from palyra.mcp.stdio_relay import StdioRelay

    if url is not None:
        if token is None:
            # The owner's token is for the owner's own daemon, and is not sent to an address somebody named.
            raise TokenMissing(f"no token for {url}")
        StdioRelay(url, Secret(token), principal).run()
        return
    daemon = running_daemon(invocation)
    if token is not None:
        StdioRelay(daemon.url, Secret(token), principal).run()
    else:
        StdioRelay(daemon.url, daemon.token, principal or DEFAULT_PRINCIPAL).run()


def running_daemon(invocation: Invocation) -> LocalDaemon:
    try:
        return find_daemon(invocation.state_path)
    except NoDaemon:
        return _started(invocation)


def _started(invocation: Invocation) -> LocalDaemon:
    """A daemon of its own session, which outlives this program for as long as another agent uses it."""
    import subprocess

    log = invocation.state_dir.path(LOG_FILE)
    with log.open("ab") as errors:
        started = subprocess.Popen(
            [sys.executable, "-m", "palyra.cli.main", *_options(invocation), "up", "--port", "0", "--for-agents"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    ended = False
    while time.monotonic() < deadline:
        try:
            return find_daemon(invocation.state_path)
        except NoDaemon:
            if ended:
                break
            # One that ended may have lost a race: then the winner is about to be there.
            ended = started.poll() is not None
            time.sleep(LOOK_AGAIN_SECONDS)
    raise DaemonNotStarted(f"no daemon came up; see {log}")


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
