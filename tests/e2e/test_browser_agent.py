"""An agent with a browser: real daemon, real browser daemon, real Chromium, and a shop that it works in.

Everything the agent is told, everything on record and every log is kept, and searched for the password at the end.
"""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.daemon import Daemon, Place
from fakes.web_application import OTHER, PASSWORD, SHOP, USER, WebApplication, orders_csv, web_application
from palyra.client.client import Client
from palyra.client.protocol import ApiError, NeedsApprovalError
from palyra.client.views import CallView

SECRET = "global/shop-password"


def settings(site: WebApplication) -> str:
    hosts = [f"{SHOP}:{site.port}", f"{OTHER}:{site.port}"]
    return f"""
[egress]
allowed_hosts = {msgspec.json.encode(hosts).decode()}
static_hosts = {{ "{SHOP}" = ["127.0.0.1"], "{OTHER}" = ["127.0.0.1"] }}
[browser]
ready = 1
private_targets = {msgspec.json.encode(hosts).decode()}
bindings = [{{ secret_ref = "{SECRET}", origins = ["{site.origin()}"] }}]
"""


class Harness:
    def __init__(self, place: Place, daemon: Daemon, site: WebApplication) -> None:
        self.place = place
        self.daemon = daemon
        self.site = site
        self._clients = ExitStack()
        self.operator = self.client()

    def client(self, token: str | None = None) -> Client:
        return self._clients.enter_context(self.daemon.client(token))

    def agent(self, name: str) -> "Agent":
        return Agent(self, self.operator.create_token(f"agent:{name}", scopes=("call",)).token.reveal())

    def close(self) -> None:
        self._clients.close()

    def record(self) -> str:
        """The whole journal and every log of this place, as text."""
        everything = self.place.palyra("journal", "export").stdout
        return everything + "".join(path.read_text(errors="replace") for path in self.place.state.glob("*.log"))


class Agent:
    """Asks over the API with a token of its own. ``received`` is every answer it ever got."""

    def __init__(self, harness: Harness, token: str) -> None:
        self._harness = harness
        self._client = harness.client(token)
        self.run = self._client.start_run().run_id
        self.session = ""
        self.received: list[Any] = []
        self.prompts = 0

    def call(self, tool: str, **arguments: Any) -> Any:
        """What the call returned; a person says yes where one is asked."""
        is_inside = self.session and tool != "browser.open"
        given = {"session": self.session, **arguments} if is_inside else arguments
        try:
            made = self._ask(tool, given)
        except NeedsApprovalError as needed:
            self.prompts += 1
            self.received.append(needed.as_dict())
            self._harness.operator.approve(needed.approval_id)
            made = self._ask(tool, given)
        return made.result

    def _ask(self, tool: str, arguments: dict[str, Any]) -> CallView:
        try:
            made = self._client.call(tool, arguments, run_id=self.run)
        except ApiError as error:
            self.received.append((error.as_dict(), error.data))
            raise
        self.received.append(made.document)
        return made

    def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        with pytest.raises(ApiError) as caught:
            self.call(tool, **arguments)
        return caught.value.as_dict()

    def open(self, path: str, *hosts: str, **more: Any) -> Any:
        opened = self.call("browser.open", url=self._harness.site.url(path), hosts=list(hosts), **more)
        self.session = opened["session"]
        return opened

    def act(self, *actions: dict[str, Any], **more: Any) -> Any:
        return self.call("browser.act", actions=list(actions), **more)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with web_application() as site:
        place = Place(tmp_path_factory.mktemp("browsing"), settings(site))
        with place.daemon(browser=True) as daemon:
            put = place.palyra("vault", "put", SECRET, stdin=PASSWORD)
            assert put.status == 0, put.stderr
            harness = Harness(place, daemon, site)
            yield harness
            harness.close()


def element(role: str, name: str) -> dict[str, str]:
    return {"role": role, "name": name}


@pytest.mark.promise("P-secret-typed")
@pytest.mark.timeout(300)
def test_an_agent_logs_in_finds_a_row_acts_and_downloads_and_never_hears_the_password(harness: Harness) -> None:
    agent, site = harness.agent("clerk"), harness.site
    opened = agent.open("/login", snapshot=True)
    assert 'textbox "Password"' in opened["snapshot"]["text"] and opened["content_is_untrusted"] is True
    assert agent.prompts == 1
    logged_in = agent.act(
        {"action": "type", "target": element("textbox", "Name"), "text": USER},
        {"action": "type", "target": element("textbox", "Password"), "secret": SECRET, "submit": True},
        snapshot=True,
    )
    assert agent.prompts == 2
    assert f"Welcome, {USER}" in logged_in["snapshot"]["text"]
    assert site.typed[-1] == {"user": USER, "password": PASSWORD}
    agent.call("browser.navigate", url=site.url("/orders"))
    agent.act({"action": "click", "target": element("link", "Next")})
    found = agent.call("browser.find", text="Dora 13")
    assert found["matches"] >= 1 and 'button "Ship order 1013"' in found["text"]
    ref = found["text"].split('button "Ship order 1013" [ref=')[1].partition("]")[0]
    shipped = agent.act({"action": "click", "target": ref})
    assert site.shipped == [1013] and shipped["outcomes"][0]["url"] == site.url("/orders?page=2")
    picture = agent.call("browser.screenshot")
    assert picture["media_type"] == "image/png" and picture["image_base64"].startswith("iVBOR")
    clicked = agent.act({"action": "click", "target": element("link", "Download as CSV")})
    agent.call("browser.wait", state="idle")
    (download,) = agent.call("browser.downloads")["downloads"]
    assert clicked["outcomes"][0]["downloads"] == [download["id"]]
    assert (download["name"], download["state"]) == ("orders.csv", "ready")
    agent.call("browser.downloads", save=download["id"], path="orders.csv")
    assert (harness.place.state / "workspace" / "orders.csv").read_text() == orders_csv()
    # Opening, the shared secret, and writing a file: of a dozen calls a person was asked about three.
    assert agent.prompts == 3
    assert agent.call("browser.close")["closed"] is True
    everything = msgspec.json.encode(agent.received).decode() + harness.record()
    assert (
        PASSWORD not in everything
        and PASSWORD.replace(" ", "%20") not in everything
        and PASSWORD.replace(" ", "+") not in everything
    )
    for kind in ("browser.session_opened", "vault.secret_used", "browser.download_saved", "browser.session_closed"):
        assert kind in everything
    receipts = [each["receipt"] for each in agent.received if isinstance(each, dict) and each.get("receipt")]
    layers = {line["layer"]: line["got"] for line in receipts[0]}
    assert layers["browser own_sandbox"] == "Seccomp: 2" and "browser namespace" in layers


@pytest.mark.promise("P-secret-typed")
@pytest.mark.timeout(300)
def test_a_page_that_says_the_password_is_not_believed_with_it(harness: Harness) -> None:
    """The echo page repeats what is typed in text, title, address and console: none of it reaches the agent."""
    agent = harness.agent("echo")
    agent.open("/echo")
    agent.act({"action": "type", "target": element("textbox", "Say"), "secret": SECRET}, snapshot=True)
    agent.call("browser.snapshot", form="text")
    agent.call("browser.snapshot", form="dom")
    agent.call("browser.logs", log="console")
    agent.act({"action": "press", "key": "Enter"}, snapshot=True)
    agent.call("browser.logs", log="network")
    agent.call("browser.tabs")
    assert harness.site.typed[-1] == {"said": PASSWORD}
    everything = msgspec.json.encode(agent.received).decode() + harness.record()
    assert PASSWORD not in everything
    agent.call("browser.close")


@pytest.mark.promise("P-own-only", "P-browser-hosts")
@pytest.mark.timeout(300)
def test_hosts_secrets_and_sessions_are_kept_apart(harness: Harness) -> None:
    agent, eve, site = harness.agent("anna"), harness.agent("eve"), harness.site
    agent.open("/", f"{OTHER}:{site.port}")
    # Another principal's session looks like one that never was.
    eve.session = agent.session
    missing = eve.refused("browser.snapshot")
    eve.session = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    never = eve.refused("browser.snapshot")
    assert missing["code"] == never["code"] == "browser.unknown_session"
    assert missing["message"].replace(agent.session, "") == never["message"].replace(eve.session, "")
    # The password is bound to the shop: on the other site's page it is not typed, though the session may be there.
    agent.call("browser.navigate", url=site.url("/echo", OTHER))
    typing = {"action": "type", "target": element("textbox", "Say"), "secret": SECRET}
    before = len(site.typed)
    refused = agent.refused("browser.act", actions=[typing])
    assert refused["code"].startswith("browser.") and "origin" in refused["message"] + refused["code"]
    assert agent.call("browser.snapshot", form="dom")["text"].count(PASSWORD) == 0 and len(site.typed) == before
    # A host that the session was not opened with: refused with words, and by no other way either.
    eve.session = ""
    eve.open("/popup")
    beyond = eve.refused("browser.navigate", url=site.url("/", OTHER))
    assert beyond["code"] == "browser.host_not_allowed" and f"{SHOP}:{site.port}" in beyond["message"]
    seen = len(site.paths(OTHER))
    window = eve.act({"action": "click", "target": element("button", "Open a window elsewhere")})
    assert window["outcomes"][0]["refused"] == [f"{site.url('/framed?who=popup', OTHER)} egress.host_not_allowed"]
    eve.act({"action": "navigate", "url": site.url("/frames")})
    led_away = eve.refused("browser.navigate", url=site.url(f"/redirect?to={site.url('/', OTHER)}"))
    assert led_away["message"] == beyond["message"]
    assert len(site.paths(OTHER)) == seen
    assert harness.record().count("browser.navigation_refused") >= 3
    beyond_settings = eve.refused("browser.open", hosts=["evil.test"])
    assert beyond_settings["code"] == "browser.host_beyond_settings"
    for each in (agent, eve):
        each.call("browser.close")


@pytest.mark.promise("P-browser-approval")
@pytest.mark.timeout(300)
def test_the_command_line_of_a_person(harness: Harness, tmp_path: Path) -> None:
    place, site = harness.place, harness.site
    assert place.palyra("browser", "open", site.url("/"), "--json").status == 4
    opened = place.palyra("browser", "open", site.url("/echo"), "--approve", "--json")
    assert opened.status == 0, opened.stderr
    session = opened.data["session"]
    listed = place.palyra("browser", "list", "--json").data["sessions"]
    assert [each["session_id"] for each in listed if each["principal"] == "agent:cli"] == [session]
    assert 'textbox "Say"' in place.palyra("browser", "snapshot", session).stdout
    typed = place.palyra("browser", "act", session, "type", "role=textbox:Say", "hello", "--submit", "--json")
    assert typed.data["done"] == 1, typed.stderr
    assert harness.site.typed[-1] == {"said": "hello"}
    picture = place.palyra("browser", "screenshot", session, "-o", str(tmp_path / "page.png"), "--json")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG") and "image_base64" not in picture.data
    assert place.palyra("browser", "navigate", session, "http://evil.test/").status == 3
    place.palyra("browser", "navigate", session, site.url("/disguised.csv"))
    (held,) = place.palyra("browser", "downloads", "list", session, "--json").data["downloads"]
    assert held["state"] == "quarantined" and "executable" in held["reasons"]
    assert place.palyra("browser", "downloads", "save", session, held["id"], "x.csv", "--approve").status == 3
    assert place.palyra("browser", "downloads", "delete", session, held["id"]).status == 0
    assert f"{held['id']} {held['digest']}" in harness.record()
    made = place.palyra("browser", "profiles", "create", "work", "--json").data
    assert made["profile_id"] in place.palyra("browser", "profiles", "list").stdout
    assert place.palyra("browser", "profiles", "delete", made["profile_id"]).status == 0
    assert place.palyra("browser", "close", session).status == 0
    assert place.palyra("browser", "snapshot", session).status != 0


@pytest.mark.promise("P-browser-ends")
@pytest.mark.timeout(300)
def test_daemons_that_die_take_their_sessions_along_and_the_next_ones_work(tmp_path: Path) -> None:
    with web_application() as site:
        place = Place(tmp_path, settings(site))
        daemon = Daemon(place, browser=True)
        harness = Harness(place, daemon, site)
        agent = harness.agent("bot")
        agent.open("/")
        browserd = int(msgspec.json.decode((place.state / "browser" / "daemon.json").read_bytes())["pid"])
        subprocess.run(["kill", "-9", str(browserd)], check=True)
        gone = agent.refused("browser.snapshot")
        assert gone["code"] in ("browser.unknown_session", "browser.unavailable")
        agent.session = ""
        agent.open("/")
        harness.close()
        daemon.kill()
        with place.daemon(browser=True) as again:
            harness = Harness(place, again, site)
            later = harness.agent("bot")
            later.session = agent.session
            assert later.refused("browser.snapshot")["code"] == "browser.unknown_session"
            later.session = ""
            later.open("/")
            (left,) = harness.operator.browser_sessions()
            assert left.session_id == later.session
            harness.close()
        assert again.process.returncode in (0, -signal.SIGTERM)
