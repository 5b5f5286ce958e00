"""What other sites, other ports, guessers and hostile agents try on the console."""

import asyncio
import html
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import expect

from fakes.console_harness import ConsoleHarness, console_harness
from fakes.console_user import ConsoleUser, console_user, listen
from fakes.eventually import eventually, eventually_sync
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import operator
from fakes.web_server import web_page
from palyra.client.protocol import ApiError
from palyra.ids import TokenId
from palyra.limits import MAX_HTTP_BODY_BYTES
from palyra.server.console.limits import MAX_LISTENERS, MAX_WRONG_LOGINS, MAX_WRONG_LOGINS_PER_TOKEN

pytestmark = pytest.mark.promise("P-console-guarded")

WRITE = {"path": "a.txt", "content": "hello"}
INTRUDER = "http://127.0.0.1:9"


async def waiting(harness: GatewayHarness) -> tuple[str, str]:
    record = await harness.call("fs.write", WRITE)
    return str(record.approval_id), f"/console/v1/approvals/{record.approval_id}/decision"


async def test_a_forged_write_of_another_page_changes_nothing(tmp_path: Path) -> None:
    """The cookie alone is worth nothing: a page on another port of this machine is sent along with it."""
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        approval_id, path = await waiting(harness)
        yes = {"decision": "approve"}
        forged = [
            await known.post(path, yes, origin=INTRUDER),
            await known.post(path, yes, origin="null"),
            await known.post(path, yes, origin=""),
            await known.post(path, yes, palyra_csrf=""),
            await known.post(path, yes, palyra_csrf="0" * 64),
            await known.post(path, b"decision=approve", content_type="application/x-www-form-urlencoded"),
            await known.post(path, json.dumps(yes).encode(), content_type="text/plain"),
            await known.send("GET", path, b""),
        ]
        assert [got.document["code"] for got in forged] == [
            *["console.cross_origin"] * 3,
            *["console.csrf"] * 2,
            *["console.json_only"] * 2,
            "http.method_refused",
        ]
        assert harness.gateway.store.read("SELECT state FROM approvals WHERE approval_id = ?", (approval_id,)) == [
            ("pending",)
        ]
        assert "console.action_requested" not in harness.kinds()
        recorded = harness.events(kind="console.request_refused")
        assert [payload["code"] for _, payload in recorded] == ["console.cross_origin", "console.csrf"]
        assert all(payload["path"] == path and payload["count"] == 1 for _, payload in recorded)


async def test_the_token_of_one_session_is_no_good_in_another(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        one, other = await console_user(harness), await console_user(harness)
        _, path = await waiting(harness)
        got = await one.post(path, {"decision": "approve"}, palyra_csrf=other.csrf)
        assert got.document["code"] == "console.csrf"


async def test_a_session_cannot_be_fixed_beforehand(tmp_path: Path) -> None:
    """A secret that somebody else planted in the browser is never taken up, and one that was used ends."""
    async with open_harness(tmp_path) as harness:
        token = await operator(harness)
        victim = ConsoleUser(harness)
        victim.cookie = planted = f"palyra_session={'p' * 43}"
        assert (await victim.log_in(token)).status == 201
        assert victim.cookie != planted
        thief = ConsoleUser(harness)
        thief.cookie = planted
        assert (await thief.get("/")).status == 303
        thief.cookie = victim.cookie
        assert (await victim.log_in(token)).status == 201
        assert (await thief.get("/")).status == 303, "the session before ended with the new login"


async def test_guessing_tokens_tells_nothing_and_locks_nobody_out(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        token = await operator(harness)
        guesser = ConsoleUser(harness)
        wrong = token[:-4] + "AAAA"
        answers = [await guesser.log_in(wrong) for _ in range(MAX_WRONG_LOGINS_PER_TOKEN + 1)]
        assert {got.body for got in answers[:-1]} == {answers[0].body} and answers[0].status == 401
        assert (answers[-1].status, answers[-1].document["code"]) == (429, "console.too_many_logins")
        assert int(answers[-1].headers["retry-after"]) > 0
        malformed = await guesser.log_in("x")
        assert malformed.body == answers[0].body, "malformed and wrong look alike"
        assert (await ConsoleUser(harness).log_in(token)).status == 201, "wrong tokens lock out no right one"
        other = ConsoleUser(harness)
        for _ in range(MAX_WRONG_LOGINS):
            await guesser.log_in(f"plr_{TokenId.new()}_{'x' * 43}")
        assert (await guesser.log_in(f"plr_{TokenId.new()}_{'x' * 43}")).status == 429
        assert (await other.log_in(await operator(harness))).status == 201
        assert (await other.log_in(token)).status == 201
        rejected = [payload["count"] for kind, payload in harness.events() if kind == "credential.rejected"]
        assert len(rejected) == 1, "guessing does not fill the journal"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"x" * (MAX_HTTP_BODY_BYTES + 1), "http.body_too_large"),
        (b'{"decision": "approve", "decision": "deny"}', "json.duplicate_key"),
        (b'{"decision": "approve", "surprise": 1}', "http.wrong_shape"),
        (b'{"decision": NaN}', "json.ambiguous_number"),
        (b"[" * 5_000, "json.malformed"),
        (b'"text"', "http.wrong_shape"),
        (b"\xff\xfe", "json.malformed"),
    ],
)
async def test_bodies_without_a_single_meaning_are_refused(tmp_path: Path, body: bytes, code: str) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        _, path = await waiting(harness)
        assert (await known.post(path, body)).document["code"] in (code, "json.too_deep")
        assert (await known.post("/console/v1/session", body)).status in (400, 413)


@pytest.mark.promise("P-limits")
async def test_listeners_have_an_end(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        starts: list[asyncio.Event] = []
        listening = [asyncio.create_task(listen(known, starts)) for _ in range(MAX_LISTENERS)]
        await eventually(lambda: sum(each.is_set() for each in starts) >= MAX_LISTENERS, every=0)
        refused = await known.get("/console/v1/events", accept="text/event-stream")
        assert (refused.status, refused.document["code"]) == (429, "console.too_many_pages")
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)


# ---- in a real browser, against a real daemon


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleHarness]:
    with another_site(HOSTILE_PAGE) as site:
        host = site.removeprefix("http://")
        settings = BROWSING.format(host=host)
        with console_harness(tmp_path_factory.mktemp("attacked"), settings, browser=True) as peers:
            SITES[peers.daemon.url] = site
            yield peers


@pytest.fixture
def peers(opened: ConsoleHarness) -> Iterator[ConsoleHarness]:
    yield opened
    opened.close_pages()
    opened.complaints.clear()


SCRIPT = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
BREAKOUT = f"{SCRIPT}</pre></textarea></title><svg onload=\"document.title='owned'\">"
HOSTILE_PAGE = f"<!doctype html><title>{html.escape(BREAKOUT)}</title><h1>Hello</h1>".encode()
# The hostile site that the agents of a daemon look at.
SITES: dict[str, str] = {}
BROWSING = """
[egress]
allowed_hosts = ["{host}"]
[browser]
private_targets = ["{host}"]
allow_no_sandbox = true
ready = 0
[tools]
allowed = ["*"]
preapproved = ["browser.*"]
"""
PAYLOADS = {"text": f"{BREAKOUT}\u202e\x1b[31m javascript:alert(1)"}


def test_what_agents_say_stays_text(peers: ConsoleHarness) -> None:
    """Output, arguments, names and reasons of hostile agents, on every page that shows them."""
    made = peers.palyra("call", "echo", "--principal", "agent:bot", "--input", json.dumps(PAYLOADS))["data"]
    peers.palyra("call", f"{SCRIPT}"[:120], "--principal", "agent:bot", "--input", "{}")
    hostile = {"path": f"{SCRIPT}/x", "content": SCRIPT}
    asked = peers.palyra("call", "fs.write", "--principal", "agent:bot", "--input", json.dumps(hostile))
    approval = asked["error"]["details"]["approval_id"]
    page = peers.page("/approvals")
    page.get_by_label("Reason").fill(SCRIPT)
    for path in (
        "/",
        "/approvals",
        f"/approvals/{approval}",
        "/calls",
        "/calls?text=%3Cscript%3Edocument.title%3D%27owned%27%3C/script%3E",
        f"/calls/{made['call_id']}",
        f"/runs/{made['run_id']}",
        "/journal?text=onerror",
        "/journal?kind=%22%3E%3Cscript%3Edocument.title%3D1%3C/script%3E",
        "/policy?tool=echo&principal=%3Cimg%20src=x%20onerror=document.title=1%3E",
        "/approvals/%3Cscript%3Edocument.title%3D%27owned%27%3C%2Fscript%3E",
    ):
        page.goto(f"{peers.daemon.url}{path}")
        page.wait_for_load_state("load")
        assert "owned" not in page.title(), path
        assert page.locator("main script, main img[onerror], main svg[onload]").count() == 0, path
    assert "onerror" in (page.goto(f"{peers.daemon.url}/calls/{made['call_id']}") or page).text()  # type: ignore[union-attr]


def test_what_pages_call_themselves_stays_text(peers: ConsoleHarness) -> None:
    """A page that an agent's browser looks at names itself, its address and a file in markup."""
    with peers.daemon.client() as client:

        def opened() -> bool:
            try:
                client.call(
                    "browser.open", {"url": f"{SITES[peers.daemon.url]}/{quote(SCRIPT)}"}, principal="agent:bot"
                )
            except ApiError as error:
                assert error.as_dict()["code"] == "browser.unavailable", error
                return False
            return True

        eventually_sync(opened, seconds=90)
        (session,) = client.browser_sessions()
    page = peers.page("/browser")
    expect(page.locator("#sessions")).to_contain_text("document.title='owned'")
    for path in ("/browser", f"/browser/{session.session_id}", "/journal?kind=browser."):
        page.goto(f"{peers.daemon.url}{path}")
        page.wait_for_load_state("load")
        if path.endswith(session.session_id):
            page.wait_for_selector("canvas[data-frames]")
        assert "owned" not in page.title(), path
        assert page.locator("main script, main img[onerror], main svg[onload]").count() == 0, path


def test_even_markup_that_got_in_would_not_run(peers: ConsoleHarness) -> None:
    """The second wall: the content policy refuses inline script, and Trusted Types refuse text as markup."""
    page = peers.page("/")
    outcome = page.evaluate(
        """() => {
          const tried = {};
          const script = document.createElement("script");
          try { script.textContent = "document.title = 'owned'"; } catch (error) { tried.script = error.name; }
          document.body.append(script);
          try { document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='document.title=1'>"); }
          catch (error) { tried.markup = error.name; }
          return {...tried, title: document.title};
        }"""
    )
    assert outcome["markup"] == "TypeError" and outcome["script"] == "TypeError"
    assert "owned" not in outcome["title"]


@contextmanager
def another_site(page: bytes) -> Iterator[str]:
    """A page on another port of the same address: for cookies the same site, for everything else another one."""
    with web_page(page) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_page_on_another_port_reads_nothing_sends_nothing_and_frames_nothing(peers: ConsoleHarness) -> None:
    asked = peers.palyra(
        "call", "fs.write", "--principal", "agent:bot", "--input", json.dumps({"path": "b.txt", "content": "x"})
    )
    approval = asked["error"]["details"]["approval_id"]
    page = peers.page("/")
    with another_site(b"<!doctype html><title>other</title><iframe id=f></iframe>") as site:
        page.goto(site)
        ours = peers.daemon.url
        seen = page.evaluate(
            """async ([ours, path]) => {
              const tried = {};
              const attempt = async (name, work) => {
                try { tried[name] = await work(); } catch (error) { tried[name] = error.name; }
              };
              const all = {credentials: "include"};
              await attempt("read", async () => (await fetch(ours + "/console/v1/approvals", all)).status);
              await attempt("blind", async () => (await fetch(ours + path, {...all, mode: "no-cors", method: "POST",
                headers: {"Content-Type": "text/plain"}, body: '{"decision":"approve"}'})).type);
              await attempt("json", async () => (await fetch(ours + path, {...all, method: "POST",
                headers: {"Content-Type": "application/json"}, body: '{"decision":"approve"}'})).status);
              await attempt("events", () => new Promise((done) => {
                const stream = new EventSource(ours + "/console/v1/events", {withCredentials: true});
                stream.onerror = () => { stream.close(); done("refused"); };
                stream.addEventListener("ready", () => { stream.close(); done("listening"); });
              }));
              await attempt("script", () => new Promise((done) => {
                const script = document.createElement("script");
                script.src = ours + "/console/v1/approvals";
                script.onerror = () => done("refused");
                script.onload = () => done("loaded");
                document.head.append(script);
              }));
              await attempt("frame", () => new Promise((done) => {
                const frame = document.getElementById("f");
                frame.onload = () => done(frame.contentDocument?.title ?? "opaque");
                frame.src = ours + "/approvals";
              }));
              return tried;
            }""",
            [ours, f"/console/v1/approvals/{approval}/decision"],
        )
    assert seen["read"] == "TypeError" and seen["json"] == "TypeError"
    assert seen["events"] == "refused" and seen["script"] == "refused"
    assert seen["frame"] in ("opaque", "")
    assert peers.palyra("approvals", "show", approval)["data"]["state"] == "pending"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7142", ""])
def test_a_name_that_was_rebound_to_this_machine_is_not_ours(peers: ConsoleHarness, host: str) -> None:
    address = urlsplit(peers.daemon.url)
    for path in ("/", "/login", "/console/v1/events", "/static/x/app.js"):
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        assert connection.getresponse().status in (400, 421), path
        connection.close()


def test_the_stream_ends_with_the_session(peers: ConsoleHarness) -> None:
    """A tab that somebody else still has open hears nothing after the person logged out."""
    page = peers.page("/approvals")
    other = page.context.new_page()
    peers.open(other, "/approvals")
    page.get_by_role("button", name="Log out").click()
    # Two navigations may meet: waiting for one of them would fail with the one that gives way.
    for tab in (page, other):
        expect(tab).to_have_url(re.compile("/login$"), timeout=30_000)


def test_answers_name_no_secret_of_the_session(peers: ConsoleHarness) -> None:
    page = peers.page("/")
    (cookie,) = page.context.cookies()
    assert cookie["value"] not in page.content()
    assert page.evaluate("document.cookie") == ""
    stored = (peers.place.state / "palyra.db").read_bytes() + (peers.place.state / "palyra.db-wal").read_bytes()
    assert cookie["value"].encode() not in stored
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", cookie["value"])
