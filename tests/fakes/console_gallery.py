"""Every page of the console with something on it, as after a busy morning: for eyes, and for axe-core."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from fakes.console_harness import ConsoleHarness, console_harness
from fakes.daemon import Place
from fakes.eventually import eventually_sync
from fakes.node_process import approve, code_arguments, make_code, node_process
from fakes.skill_harness import PUBLISHER, SKILL, archive
from fakes.web_server import QuietHandler, web_server
from fakes.worker_process import WorkerProcess, join, worker_process
from palyra.client.client import Client
from palyra.client.protocol import ApiError
from palyra.secret import Secret
from palyra.signing.ed25519 import Ed25519Signer

CODER, RESEARCHER = "agent:coder", "agent:researcher"
ORDERS = b"""<!doctype html><title>Orders of the week</title>
<style>body{font:16px sans-serif;margin:3rem}td,th{padding:.4rem 1rem;border:1px solid #999}</style>
<h1>Orders</h1><table><tr><th>Customer<th>Amount<tr><td>Ada<td>120<tr><td>Grace<td>85</table>
<p><a id="file" href="/orders.csv" download>Download them</a><script>document.getElementById("file").click()</script>"""
# A program that calls itself a table: it goes into quarantine.
DISGUISED = b"MZ\x90\x00\x03\x00\x00\x00" + b"\x00" * 512
ASKS_FOR_MORE = """http_egress_allowlist = ["api.example.org", "*.cdn.example.org"]
secrets = ["skill:acme.notes/api_token"]
wildcard_opt_in = ["http"]"""
SETTINGS = """
[access.groups]
viewers = ["user:eve"]
[skills]
builder_enabled = true
[nodes]
heartbeat_seconds = 1.0
heartbeat_timeout_seconds = 30.0
[workers]
require_egress_binding = false
heartbeat_seconds = 1.0
heartbeat_timeout_seconds = 30.0
[egress]
allowed_hosts = ["127.0.0.1:{port}"]
private_targets = ["127.0.0.1:{port}"]
[browser]
private_targets = ["127.0.0.1:{port}"]
allow_no_sandbox = true
ready = 0
[tools]
allowed = ["*"]
preapproved = ["browser.*", "http.fetch", "fs.read", "fs.list"]
"""


# Pages with an address of their own, then those whose address is an id.
FIXED = {
    "overview": "/",
    **{name: f"/{name}" for name in ("approvals", "calls", "runs", "journal", "policy", "skills", "devices")},
    **{name: f"/{name}" for name in ("browser", "vault", "egress", "access", "doctor")},
    "explained": f"/policy?principal={CODER}&tool=fs.write",
    "refused-question": "/policy?principal=nobody&tool=fs.write",
    "replay": "/policy/replay",
    "searched": "/journal?kind=call.decided",
    "nothing-found": "/journal?text=no-such-needle",
    "refused-calls": "/calls?state=refused_or_failed",
    "no-such-page": "/nowhere",
}
PAGES = (
    *FIXED,
    *("approved", "denied", "waiting", "run", "call", "call-arguments", "call-with-approval", "event"),
    *("skill", "candidate", "browser-session"),
)


class Gallery:
    """``paths`` has an address for each kind of page that there is."""

    def __init__(self, harness: ConsoleHarness, port: int, root: Path) -> None:
        self.harness = harness
        self.paths: dict[str, str] = dict(FIXED)
        self.site = f"http://127.0.0.1:{port}/"
        self._root = root
        self._client = harness.daemon.client()

    def fill(self, kept: ExitStack) -> None:
        client = kept.enter_context(self._client)
        self._devices(kept)
        self._calls(client)
        self._skills(client)
        self._browser(client)
        client.put_secret("global/deploy_key", Secret("never shown"))
        client.create_token("agent:nightly", label="the nightly build", ttl_seconds=86_400)

    def make_what_people_make(self, page: Page) -> None:
        """What there is only after somebody asked for it on a page."""
        self.harness.open(page, "/journal?kind=call.finished")
        found = page.locator("#events tbody tr").first.get_by_role("link").first
        self.paths["event"] = str(found.get_attribute("href"))
        self.harness.open(page, "/skills")
        page.get_by_label("Skill id").fill("acme.greeter")
        page.get_by_label("Publisher").fill("acme")
        page.get_by_label("What it shall do").fill("Greets people by their names, in the language they speak.")
        page.get_by_role("button", name="Write a scaffold").click()
        made = page.locator("#candidates").get_by_role("link", name="acme.greeter")
        self.paths["candidate"] = str(made.get_attribute("href"))
        self.harness.open(page, "/doctor")
        page.get_by_role("button", name="Examine this machine").click()
        expect(page.locator("#report tbody")).to_contain_text("keeps the file tools in their workspace")

    def _calls(self, client: Client) -> None:
        run = client.start_run({"calls": 40}, principal=CODER).run_id

        def call(tool: str, arguments: dict[str, Any], principal: str = CODER, **more: Any) -> Any:
            try:
                return client.call(tool, arguments, principal=principal, **more)
            except ApiError as error:
                return error

        echoed = call("echo", {"text": "a long line " * 40}, run_id=run)
        for name in ("plan.md", "today.md"):
            asked = call("fs.write", {"path": name, "content": "# Plan\n\n- ship it\n"}, run_id=run)
            client.approve(asked.details["approval_id"], reason="as agreed")
            written = call("fs.write", {"path": name, "content": "# Plan\n\n- ship it\n"}, run_id=run)
        self.paths["approved"] = f"/approvals/{asked.details['approval_id']}"
        denied = call("fs.write", {"path": ".env", "content": "TOKEN=1"}, run_id=run)
        client.deny(denied.details["approval_id"], reason="secrets do not belong into files")
        self.paths["denied"] = f"/approvals/{denied.details['approval_id']}"
        for tool, arguments in (
            ("fs.read", {"path": "plan.md"}),
            ("fs.read", {"path": "../../etc/passwd"}),
            ("http.fetch", {"url": self.site}),
            ("http.fetch", {"url": "http://169.254.169.254/latest/meta-data/"}),
            ("sleep", {"seconds": 0.2}),
            ("no.such.tool", {}),
        ):
            call(tool, arguments, run_id=run)
        waits = call("fs.write", {"path": "plan.md", "content": "# Plan\n\n- ship it on Friday\n"}, run_id=run)
        call(
            "process.run",
            {"command": "git", "args": ["push", "--force", "origin", "main"]},
            RESEARCHER,
            session="chat-42",
        )
        self.paths |= {
            "waiting": f"/approvals/{waits.details['approval_id']}",
            "run": f"/runs/{run}",
            "call": f"/calls/{echoed.call_id}",
            "call-arguments": f"/calls/{echoed.call_id}/arguments",
            "call-with-approval": f"/calls/{written.call_id}",
        }

    def _skills(self, client: Client) -> None:
        signer = Ed25519Signer.load_or_create(self._root / "acme.key")
        client.add_publisher(PUBLISHER, signer.public_key())
        for version in ("1.0.0", "1.1.0"):
            new = client.install_skill(archive(version, signer=signer))
            client.approve_skill(SKILL, version, new.digest, reason="read by two of us")
        client.install_skill(archive("2.0.0", signer=signer, capabilities=ASKS_FOR_MORE))
        self.paths["skill"] = f"/skills/{SKILL}"

    def _browser(self, client: Client) -> None:
        """Once the browser daemon, which is started beside the other one, is there."""

        def opened() -> bool:
            with suppress(ApiError):
                client.call("browser.open", {"url": self.site}, principal=RESEARCHER)
                return True
            return False

        eventually_sync(opened, seconds=90)
        (session,) = client.browser_sessions()
        eventually_sync(lambda: bool(client.browser_downloads(session.session_id)), seconds=60)
        client.create_browser_profile(RESEARCHER, "Work")
        self.paths["browser-session"] = f"/browser/{session.session_id}"

    def _devices(self, kept: ExitStack) -> None:
        home = self.harness.place
        phone, machine, stranger = (Place(self._root / name) for name in ("phone", "machine", "stranger"))
        join(home, machine)
        kept.enter_context(worker_process(machine, "--slots", "4")).says("connected and attested")
        node = kept.enter_context(node_process(phone, *code_arguments(make_code(home))))
        approve(home, node.comparison_code)
        node.says("connected")
        joining = WorkerProcess(stranger, "join", *code_arguments(make_code(home, kind="worker")))
        kept.callback(joining.stop)
        joining.says("shows the code")
        make_code(home, "qr")


@contextmanager
def orders_site() -> Iterator[int]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            if self.path == "/orders.csv":
                self.answer(DISGUISED, "text/csv")
            else:
                self.answer(ORDERS)

    with web_server(Handler) as port:
        yield port


@contextmanager
def console_gallery(root: Path) -> Iterator[Gallery]:
    with orders_site() as port, console_harness(root / "home", SETTINGS.format(port=port), browser=True) as harness:
        gallery = Gallery(harness, port, root)
        with ExitStack() as kept:
            gallery.fill(kept)
            yield gallery
