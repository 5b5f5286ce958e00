"""``palyra tour``: real calls in every tier, in a place of its own that is removed afterwards.

The place is a temporary folder with a daemon, a worker and a browser, and a small web server to reach.
"""

import http.server
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from palyra.cli.invocation import Invocation, pass_invocation
from palyra.cli.terminal import Output
from palyra.client.client import Client
from palyra.client.protocol import NeedsApprovalError
from palyra.client.views import CallView
from palyra.errors import Failed, PalyraError
from palyra.journal.verify import verify_journal
from palyra.pipeline.domain.receipt_text import format_sizes
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.signing.tool_attestation import verify_attestation
from palyra.store.sqlite.store import SqliteReader

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


class TourPlace:
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

    def call_approved(self, tool: str, arguments: dict[str, Any], **options: Any) -> CallView:
        """Make the call, and approve it as the person who takes the tour if policy asks for one."""
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
        """Run the command line, as a person would."""
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
def open_tour(folder: Path, steps: Steps) -> Iterator[TourPlace]:
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
        yield TourPlace(folder, steps, port, client, environment)


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
    """Run the embedded stack as ``palyra up`` starts it. It is stopped in order, and killed if it does not end."""
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


@click.command()
@pass_invocation
def tour(invocation: Invocation) -> None:
    """Walk through what Palyra does, with real calls in every tier.

    Starts a daemon with a worker and a browser in a temporary folder: your settings, approvals and journal are not
    touched, and nothing is reached but a small web server of the tour's own on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="palyra-tour-") as folder:
        steps = Steps(invocation.output)
        with open_tour(Path(folder), steps) as place:
            for part in (plain_call, approval, confinement, budget, denial, skill, programs, network, worker, browser):
                part(place)
        journal(steps, Path(folder) / "state")
        invocation.output.data({"steps": steps.taken}, lambda _: f"{len(steps.taken)} steps, each as expected.")


def plain_call(place: TourPlace) -> None:
    steps = place.steps
    made = place.call("echo", {"text": "hello"})
    steps.expect(made.result == {"text": "hello"} and made.decision is not None, "echo returns its text")
    by = ", ".join(made.decision.policies if made.decision else ())
    steps.note("an agent calls echo", "allowed", f"policy {by}")
    envelope = json.dumps(made.attestation).encode()
    verifiers = (Ed25519Verifier.from_pem_file(place.state / "signing.pub"),)
    verify_attestation(envelope, verifiers)
    steps.note("its attestation is verified offline", "allowed", "signature and execution digest agree")
    flipped = bytearray(envelope)
    flipped[flipped.index(b'"payload": "') + 20] ^= 1
    try:
        verify_attestation(bytes(flipped), verifiers)
    except PalyraError as error:
        steps.note("the same attestation with one bit flipped", "refused", error.code)
    else:
        raise TourSurprised("a changed attestation was accepted")


def approval(place: TourPlace) -> None:
    steps, write = place.steps, {"path": "notes.txt", "content": "written once\n"}
    approval_id = _needs_approval(place, write, "an agent wants to write a file")
    code = place.refusal(lambda: place.client.approve(approval_id, decided_as=AGENT))
    steps.note("the agent approves its own request", "refused", code)
    place.client.approve(approval_id)
    steps.note("a person approves exactly this call, once", "allowed", "bound to principal, tool, arguments, policies")
    _needs_approval(place, {**write, "content": "something else\n"}, "the agent changes one argument")
    made = place.call("fs.write", write)
    steps.expect((place.workspace / "notes.txt").read_text() == "written once\n", "the file is written")
    steps.note("the agent makes the approved call", "allowed", f"approval {made.approval_id} is used up")
    _needs_approval(place, write, "and makes it again")


def _needs_approval(place: TourPlace, write: dict[str, str], what: str) -> str:
    try:
        place.call("fs.write", write)
    except NeedsApprovalError as error:
        place.steps.note(what, "waits", "needs a person's approval (filesystem_write is sensitive)")
        place.steps.expect(error.approval_id is not None, "the answer names the approval")
        return error.approval_id or ""
    raise TourSurprised("a sensitive call ran without approval")


def confinement(place: TourPlace) -> None:
    code = place.refusal(lambda: place.call("fs.read", {"path": "../../signing.key"}))
    place.steps.note("the agent reads outside its workspace", "refused", code)
    doubled = '{"text":"a","text":"b"}'
    code = place.refusal(lambda: place.client.call("echo", arguments_json=doubled, principal=AGENT))
    place.steps.note("arguments with a duplicate key", "refused", code)


def budget(place: TourPlace) -> None:
    run_id = place.client.start_run({"calls": 2}, principal=AGENT).run_id
    for _ in range(2):
        place.call("echo", {"text": "x"}, run_id=run_id)
    code = place.refusal(lambda: place.call("echo", {"text": "x"}, run_id=run_id))
    place.steps.note("a third call in a run with a budget of two", "refused", code)


def denial(place: TourPlace) -> None:
    code = place.refusal(lambda: place.client.call("echo", {"text": "x"}, principal=AGENT, channel="carrier-pigeon"))
    place.steps.note("a call through a channel that policy does not know", "refused", code)


def journal(steps: Steps, state: Path) -> None:
    verifiers = (Ed25519Verifier.from_pem_file(state / "signing.pub"),)
    database = state / "palyra.db"
    with SqliteReader(database) as reader:
        report = verify_journal(reader, verifiers)
    steps.note("the journal is verified", "allowed", f"{report.events} events, one chain, signed checkpoints")
    with sqlite3.connect(database) as attacker:
        for (name,) in attacker.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            attacker.execute(f'DROP TRIGGER "{name}"')
        attacker.execute("UPDATE events SET actor = 'agent:nobody' WHERE seq = 5")
    attacker.close()
    try:
        with SqliteReader(database) as reader:
            verify_journal(reader, verifiers)
    except PalyraError as error:
        steps.note(
            "somebody edits event 5 and verifies again", "refused", f"{error.code} at seq {error.details['seq']}"
        )
    else:
        raise TourSurprised("an edited journal was accepted")


def skill(place: TourPlace) -> None:
    """Written, signed, installed and approved with the commands that a plugin's author and an operator use."""
    palyra = place.palyra
    palyra("skill", "new", "hello", "--lang", "wat")
    palyra("skill", "build", "hello")
    palyra("skill", "keygen", "publisher.key")
    archive = palyra("skill", "sign", "hello", "--key", "publisher.key")["file"]
    palyra("skill", "trust", "add", "local", "publisher.pub")
    digest = palyra("skill", "install", archive)["digest"]
    code = place.refusal(lambda: place.call("skill.hello.echo", {"name": "Ada"}))
    place.steps.note("a skill is installed and not yet approved", "refused", code)
    palyra("skill", "approve", "hello", "0.1.0", "--digest", digest)
    made = place.call("skill.hello.echo", {"name": "Ada"})
    used = format_sizes("wasm", next(line["got"] for line in made.receipt or () if line["layer"] == "wasm"))
    place.steps.note("approved, it runs in WASM (Tier A)", "allowed", used)


def programs(place: TourPlace) -> None:
    (place.workspace / "greeting.txt").write_text("hello from the workspace\n")
    read = {"command": "cat", "args": ["greeting.txt"]}
    made = place.call_approved("process.run", read)
    place.steps.expect(made.result["stdout"] == "hello from the workspace\n", "a program reads the workspace")
    held = sum(line["held"] for line in made.receipt or ())
    place.steps.note(
        "a program reads its workspace, isolated (Tier C)", "allowed", f"{made.result['backend']}, {held} layers held"
    )
    options = ("--tier", "b", "--egress", "preflight", "--workspace", str(place.workspace))
    limited = place.palyra("run", *options, "--", "cat", "greeting.txt")
    place.steps.expect(limited["stdout"] == "hello from the workspace\n", "a limited program reads the workspace")
    place.steps.note("the same as a limited process (Tier B)", "allowed", f"{limited['backend']}, no daemon needed")
    code = place.refusal(lambda: place.call_approved("process.run", {"command": "cat", "args": ["/etc/shadow"]}))
    place.steps.note("a program is pointed at a file outside", "refused", code)
    code = place.refusal(lambda: place.call_approved("process.run", {"command": "bash", "args": ["-c", "id"]}))
    place.steps.note("the agent asks for a shell", "refused", code)


def network(place: TourPlace) -> None:
    allowed = f"{HOST}:{place.port}"
    fetch = ["-sS", "--max-time", "20", f"http://{allowed}/"]
    made = place.call_approved("process.run", {"command": "curl", "args": fetch})
    place.steps.expect("Orders" in made.result["stdout"], "an allowed host is reached")
    place.steps.note("curl in the sandbox reaches an allowed host", "allowed", f"{allowed}, through the egress proxy")
    elsewhere = ["-sS", "--max-time", "20", "http://elsewhere.test/"]
    code = place.refusal(lambda: place.call_approved("process.run", {"command": "curl", "args": elsewhere}))
    place.steps.note("and is pointed at another", "refused", code)


def worker(place: TourPlace) -> None:
    made = place.once_there(lambda: place.call("echo", {"text": "from the worker"}, tier="worker"))
    place.steps.expect(made.result == {"text": "from the worker"}, "the worker answers")
    lease = (made.receipt or [{}])[0]
    place.steps.note("a call is leased to an attested worker", "allowed", str(lease.get("got", "")))


def browser(place: TourPlace) -> None:
    """Show that a session belongs to its run: another run of the same agent does not see it."""
    host, run_id = f"{HOST}:{place.port}", place.client.start_run(principal=AGENT).run_id
    opened = place.once_there(
        lambda: place.call_approved("browser.open", {"hosts": [host], "url": f"http://{host}/"}, run_id=run_id)
    )
    session = {"session": opened.result["session"]}
    seen = place.call_approved("browser.snapshot", session, run_id=run_id).result
    place.steps.expect("Orders" in seen["text"], "the page's heading is seen")
    place.steps.note("a page in a guarded browser", "allowed", f"{host}, in a session of its own")
    elsewhere = {**session, "url": "http://elsewhere.test/"}
    code = place.refusal(lambda: place.call_approved("browser.navigate", elsewhere, run_id=run_id))
    place.steps.note("the browser is pointed elsewhere", "refused", code)
    place.call_approved("browser.close", session, run_id=run_id)
