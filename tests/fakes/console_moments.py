"""What pages of the console show only at a moment: while somebody decides, after something was made, when things go
wrong. Each moment brings a page that is open already to it, as often as it is asked for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

from playwright.sync_api import Page, expect

from fakes.console_gallery import CODER, Gallery
from fakes.console_harness import ConsoleHarness, console_harness
from fakes.daemon import Place
from fakes.eventually import eventually_sync
from palyra.client.protocol import ApiError

Moment = Callable[[Page], None]
EMPTY_PAGES = ("", "approvals", "calls", "runs", "skills", "devices", "browser", "vault", "egress", "access", "doctor")
FORBIDS_READING = (
    '@id("team.no-reading")\nforbid (principal, action == Action::"tool.execute", resource == Tool::"fs.read");'
)


class Moments:
    """``of_operator`` are moments of whoever is logged in as admin; ``of_viewer`` of somebody who may only look."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery
        self._harness = gallery.harness
        self._kept = ExitStack()
        self._client = self._kept.enter_context(self._harness.daemon.client())
        made = self._client.create_token("user:eve", scopes=("call",), label="looks only")
        self.viewer: str = made.token.reveal()
        self._bundle: str = self._client.status().document["policy"]["bundle_digest"]
        self._calls: dict[str, str] = {}
        self._runs = 0
        self._running: list[str] = []
        self._make_calls()

    def close(self) -> None:
        """A daemon waits for what runs before it stops."""
        for call in self._running:
            with suppress(ApiError):
                self._client.cancel(call)
        self._kept.close()

    @property
    def of_operator(self) -> dict[str, Moment]:
        paths = self._gallery.paths
        return {
            "focus-on-the-menu": lambda page: self._focus(page, "/", "#menu a[href='/journal']"),
            "focus-past-the-menu": lambda page: self._focus(page, "/", ".skip"),
            "focus-on-a-button": lambda page: self._focus(page, paths["waiting"], "button.primary"),
            "focus-on-a-list": lambda page: self._focus(page, "/calls", ".scroll"),
            "approve-a-pattern": self._choose_pattern,
            "policy-opened": self._open_policies,
            "refused-call": lambda page: self._open(page, f"/calls/{self._calls['refused']}"),
            "process-call": lambda page: self._open(page, f"/calls/{self._calls['process']}"),
            "fetched-call": lambda page: self._open(page, f"/calls/{self._calls['fetched']}"),
            "running": lambda page: self._watch_running(page, "/"),
            "running-call": lambda page: self._watch_running(page, "/calls/{}"),
            "own-request": lambda page: self._open(page, "/approvals"),
            "decided-as": lambda page: self._open(page, "/approvals?state=denied"),
            "verified": self._verify,
            "token-made": self._make_token,
            "pairing-qr": lambda page: self._pair(page, "qr"),
            "pairing-pin": lambda page: self._pair(page, "pin"),
            "wrong-digits": self._wrong_digits,
            "taken-over": self._take_over,
        }

    @property
    def of_viewer(self) -> dict[str, Moment]:
        return {
            f"viewer-{name}": lambda page, path=path: self._open(page, path)
            for name, path in (
                *(("approvals", "/approvals"), ("devices", "/devices"), ("access", "/access"), ("journal", "/journal")),
                ("browser-session", self._gallery.paths["browser-session"]),
            )
        }

    @property
    def of_stranger(self) -> dict[str, Moment]:
        return {
            "login": lambda page: page.goto(f"{self._harness.daemon.url}/login") and None,
            "login-refused": self._wrong,
        }

    @property
    def last(self) -> dict[str, Moment]:
        """What changes the harness for good: after everything else."""
        return {
            "quarantined-worker": self._quarantine,
            "replay-differs": self._replay,
            "policy-rejected": lambda page: self._reject_policy(page, "/policy"),
            "overview-rejected": lambda page: self._reject_policy(page, "/"),
        }

    def _make_calls(self) -> None:
        def call(tool: str, arguments: dict[str, Any], principal: str = CODER, **more: Any) -> Any:
            try:
                return self._client.call(tool, arguments, principal=principal, **more)
            except ApiError as error:
                return error

        self._calls["refused"] = call("fs.read", {"path": "../../etc/passwd"}).call_id
        listed = {"command": "ls", "args": ["-l"]}
        self._client.approve(call("process.run", listed).details["approval_id"], reason="harmless")
        self._calls["process"] = call("process.run", listed).call_id
        self._calls["fetched"] = call("http.fetch", {"url": self._gallery.site}).call_id
        call("fs.write", {"path": "mine.md", "content": "x"}, principal="user:operator")

    def _watch_running(self, page: Page, path: str) -> None:
        """A call that runs now; it ends with its own deadline, so each look has one of its own."""
        self._runs += 1
        principal = f"agent:patient-{self._runs}"
        self._harness.start_call("sleep", {"seconds": 300}, principal=principal)
        self._open(page, path.format(self._running_call(principal)))

    def _running_call(self, principal: str) -> str:
        found: list[str] = []

        def runs() -> bool:
            events = self._harness.palyra("journal", "tail", "-n", "20", "--kind", "call.started")["data"]["events"]
            found.extend(str(event["call"]) for event in events if event["principal"] == principal)
            return bool(found)

        eventually_sync(runs, seconds=30)
        self._running.append(found[-1])
        return found[-1]

    def _open(self, page: Page, path: str) -> None:
        self._harness.open(page, path)

    def _focus(self, page: Page, path: str, selector: str) -> None:
        """By the keyboard: a browser rings only what was come to so."""
        self._harness.open(page, path)
        page.evaluate("document.activeElement.blur()")
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("(which) => document.activeElement.matches(which)", selector):
                return
        raise AssertionError(f"{selector} is not come to")

    def _choose_pattern(self, page: Page) -> None:
        self._harness.open(page, self._gallery.paths["waiting"])
        page.locator("select[name=scope]").select_option("pattern")

    def _open_policies(self, page: Page) -> None:
        self._harness.open(page, self._gallery.paths["waiting"])
        page.locator("details.policy summary").first.click()

    def _verify(self, page: Page) -> None:
        self._harness.open(page, "/journal?kind=approval.")
        page.get_by_role("button", name="Verify").click()
        expect(page.locator("#verified")).to_contain_text("Sound")

    def _make_token(self, page: Page) -> None:
        self._harness.open(page, "/access")
        page.get_by_label("For", exact=True).fill("agent:coder")
        page.get_by_label("Label").fill("the editor's agent")
        page.get_by_role("button", name="Make a token").click()
        expect(page.locator("#made")).to_contain_text("plr_")

    def _pair(self, page: Page, method: str) -> None:
        self._harness.open(page, "/devices")
        page.locator("#kind").select_option("worker")
        page.locator("#method").select_option(method)
        page.get_by_role("button", name="Make a code").click()
        expect(page.locator("#code-text")).to_contain_text("palyra-workerd join")

    def _wrong_digits(self, page: Page) -> None:
        self._harness.open(page, "/devices")
        page.get_by_label("Digits").fill("000000")
        page.get_by_role("button", name="Let it in").click()
        expect(page.locator("#asking .approve .problem")).to_be_visible()

    def _take_over(self, page: Page) -> None:
        self._harness.open(page, self._gallery.paths["browser-session"])
        take = page.get_by_role("button", name="Take over")
        if take.count():
            page.get_by_label("Reason").fill("to see that it buys the right thing")
            take.click()
        expect(page.get_by_text("You have this session")).to_be_visible()
        page.wait_for_selector("canvas[data-frames]")

    def _wrong(self, page: Page) -> None:
        page.goto(f"{self._harness.daemon.url}/login")
        page.fill("#token", "plr_not-this-one")
        page.click("button.primary")
        expect(page.locator(".problem")).to_be_visible()

    def _quarantine(self, page: Page) -> None:
        self._harness.open(page, "/devices")
        button = page.get_by_role("button", name="Quarantine")
        if button.count():
            page.once("dialog", lambda dialog: dialog.accept())
            button.click()
        expect(page.get_by_role("button", name="Release")).to_be_visible()

    def _replay(self, page: Page) -> None:
        self._write_policy(
            FORBIDS_READING, lambda now: now["rejected"] is None and now["bundle_digest"] != self._bundle
        )
        self._open(page, "/policy/replay")
        expect(page.locator("main")).to_contain_text("deny")

    def _reject_policy(self, page: Page, path: str) -> None:
        self._write_policy("permit (principal, action == ;", lambda now: now["rejected"] is not None)
        self._open(page, path)

    def _write_policy(self, text: str, taken_up: Callable[[dict[str, Any]], bool]) -> None:
        (self._harness.place.policies / "team.cedar").write_text(text)
        eventually_sync(lambda: taken_up(self._client.status().document["policy"]), seconds=30)


@contextmanager
def empty_harness(root: Path) -> Iterator[ConsoleHarness]:
    """As it is a minute after the first start, without a browser daemon."""
    with console_harness(root) as harness:
        yield harness


@contextmanager
def harness_with_lost_profiles(root: Path) -> Iterator[ConsoleHarness]:
    """The folder of browser profiles is not the one that palyrad last heard of."""
    settings = "[browser]\nallow_no_sandbox = true\nready = 0\n"
    place = Place(root, settings)
    profiles = place.state / "browser" / "profiles"
    with place.daemon(browser=True) as daemon, daemon.client() as client:

        def there() -> bool:
            with suppress(ApiError):
                client.create_browser_profile("agent:clerk", "Work")
                return True
            return False

        eventually_sync(there, seconds=90)
        older = copytree(profiles, root / "older")
        client.create_browser_profile("agent:clerk", "Shopping")
    rmtree(profiles)
    copytree(older, profiles)
    with console_harness(root, settings, browser=True) as harness, harness.daemon.client() as client:

        def noticed() -> bool:
            with suppress(ApiError):
                client.browser_profiles()
            return bool(client.status().document["browser"].get("profiles_rolled_back"))

        eventually_sync(noticed, seconds=90)
        yield harness
