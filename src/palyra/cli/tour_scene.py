"""Where the tour takes place: a daemon with a worker and a browser in a temporary folder, and a web server to reach."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from palyra.cli.output import Output
from palyra.client.client import Client
from palyra.client.protocol import NeedsApprovalError
from palyra.client.views import CallView
from palyra.errors import Failed, PalyraError

AGENT: Final = "agent:tour"
# A name that no resolver knows: the tour's settings give it this machine's own address.
HOST: Final = "demo.test"
PAGE: Final = b"""<!doctype html><title>Orders</title><h1>Orders</h1>
<p>Nothing here was fetched from anywhere but this machine.</p><a href="/more">More orders</a>"""
_PALYRA: Final = (sys.executable, "-m", "palyra.cli.main")
# A worker and a browser are started and paired meanwhile, perhaps on a busy machine.
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 90.0
_LOOK_AGAIN_SECONDS: Final = 0.2
T = TypeVar("T")


class TourSurprised(Failed):
    code = "tour.surprised"
    hint = "a step did not go as it must; `palyra doctor` may tell why"


class Steps:
    """Prints a line for each step as it happens, and stops the tour at the first surprise."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.taken: list[dict[str, Any]] = []

    def note(self, what: str, outcome: str, why: str) -> None:
        self.taken.append({"step": what, "outcome": outcome, "why": why})
        if not self._output.json:
            color = {"allowed": "green", "refused": "red"}.get(outcome, "yellow")
            shown = self._output.style(f"{outcome:>8}", color)
            self._output.text(f"{shown}  {what}: {why}")
            self._output.flush()

    def expect(self, condition: bool, what: str) -> None:
        if not condition:
            raise TourSurprised(f"the tour expected that {what}")


class TourScene:
    def __init__(self, folder: Path, steps: Steps, port: int, client: Client, environment: dict[str, str]) -> None:
        self.folder = folder
        self.steps = steps
        self.port = port
        self.client = client
        self.state = folder / "state"
        self.workspace = self.state / "workspace"
        self._environment = environment

    def call(self, tool: str, arguments: dict[str, Any], **options: Any) -> CallView:
        return self.client.call(tool, arguments, principal=AGENT, channel="cli", **options)

    def approved(self, tool: str, arguments: dict[str, Any], **options: Any) -> CallView:
        """The call, approved by the person who takes the tour when policy asks for one."""
        try:
            return self.call(tool, arguments, **options)
        except NeedsApprovalError as error:
            self.client.approve(error.approval_id or "")
        return self.call(tool, arguments, **options)

    def once_there(self, act: Callable[[], T]) -> T:
        """For what is started beside the daemon and may still be on its way."""
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                return act()
            except PalyraError:
                if time.monotonic() > until:
                    raise
            time.sleep(_LOOK_AGAIN_SECONDS)

    def refusal(self, act: Callable[[], object]) -> str:
        try:
            act()
        except PalyraError as error:
            return str(error.as_dict()["code"])
        raise TourSurprised("a call that must be refused was not")

    def palyra(self, *words: str) -> Any:
        """The command line, as a person would use it."""
        options = words.index("--") if "--" in words else len(words)
        done = subprocess.run(
            [*_PALYRA, *words[:options], "--json", *words[options:]],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            timeout=START_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise TourSurprised(f"palyra {' '.join(words)}: {done.stdout.decode(errors='replace')[:2_000]}")
        return json.loads(done.stdout)["data"]


@contextmanager
def touring(folder: Path, steps: Steps) -> Iterator[TourScene]:
    with ExitStack() as stack:
        port = stack.enter_context(_web_server())
        (folder / "config.toml").write_text(_settings(port))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PALYRA_")}
        environment = {
            **kept,
            "PALYRA_CONFIG": str(folder / "config.toml"),
            "PALYRA_STATE_DIR": str(folder / "state"),
            "NO_COLOR": "1",
        }
        url, token = stack.enter_context(_daemon(environment))
        client = stack.enter_context(Client(base_url=url, token=token))
        yield TourScene(folder, steps, port, client, environment)


def _settings(port: int) -> str:
    host = json.dumps([f"{HOST}:{port}"])
    return f"""
[egress]
allowed_hosts = {host}
private_targets = {host}
static_hosts = {{ "{HOST}" = ["127.0.0.1"] }}
[sandbox]
allowed_hosts = {host}
[browser]
allowed_hosts = {host}
private_targets = {host}
"""


@contextmanager
def _daemon(environment: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The embedded stack as ``palyra up`` starts it. It is asked to stop in order, and killed if it does not."""
    process = subprocess.Popen(
        [*_PALYRA, "up", "--port", "0", "--workers", "1", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line or not (started := json.loads(line))["ok"]:
            raise TourSurprised(f"the daemon did not start: {line.decode(errors='replace')[:2_000]}")
        yield started["data"]["url"], started["data"]["token"]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_arguments: Any) -> None:
        pass


@contextmanager
def _web_server() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, name="the tour's web server")
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
