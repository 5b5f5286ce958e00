"""A session's tabs in a real Chromium: one browser for all of these."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.eventually import eventually
from fakes.page_harness import EVIL, OTHER, SECRET, SHOP, NotAllowed, PageHarness, page_harness
from palyra.browser.domain.action import (
    Back,
    BadAction,
    CloseTab,
    Evaluate,
    ExportPdf,
    Forward,
    HandleDialog,
    LoadState,
    Navigate,
    ObserveAsk,
    OpenTab,
    Reload,
    ResetState,
    SetPermissions,
    SetViewport,
    SwitchTab,
)
from palyra.browser.domain.page_errors import (
    DialogOpen,
    NavigationFailed,
    NoDialog,
    NoHistory,
    PageTimeout,
    SchemeRefused,
    UnknownTab,
)
from palyra.browser.tabs import session_tabs

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageHarness]:
    async with page_harness(tmp_path_factory.mktemp("pages")) as harness:
        await harness.open()
        yield harness


@pytest_asyncio.fixture(loop_scope="module")
async def harness(browser: PageHarness) -> PageHarness:
    """Nothing is left of the test before."""
    await browser.pages.perform(ResetState())
    browser.site.asked.clear()
    browser.judge.documents.clear()
    return browser


@pytest.mark.promise("P-browser-target")
async def test_a_title_is_told_as_it_is_after_each_action(harness: PageHarness) -> None:
    await harness.go()
    assert (await harness.run("document.title = 'Changed'")).title == "Changed"
    assert (await harness.run("document.head.innerHTML = '<title>Anew</title>'; 1")).title == "Anew"
    assert (await harness.run("document.querySelector('title').firstChild.data = 'By node'")).title == "By node"
    assert (await harness.run("document.title = ''")).title == ""
    assert (
        await harness.run("new Promise(done => setTimeout(() => done(document.title = 'Late'), 5))")
    ).title == "Late"
    hides = "document.title = 'Shown'; document.body.innerHTML = '<img name=title><img name=head>'; 1"
    assert (await harness.run(hides)).title == "Shown"
    # No event is asked for but those of our own world: a page cannot tell a title by itself.
    assert (
        await harness.run("Object.keys(globalThis).filter(key => key.startsWith('tell_')).length")
    ).value_json == "0"
    popup = await harness.run("const w = open('/'); 1")
    opened = harness.pages.find_tab(popup.new_tabs[0].tab)
    await eventually(lambda: not opened.load.busy)
    await harness.run("document.querySelector('title').textContent = 'Text'")
    assert [tab.title for tab in (await harness.pages.observe(ObserveAsk())).tabs] == ["Text", "Shop"]


@pytest.mark.promise("P-browser-target")
async def test_a_page_that_changes_its_title_all_the_time_is_told_of_in_moderation(harness: PageHarness) -> None:
    await harness.go()
    methods: list[str] = []
    tab = harness.pages.active_tab()
    stop = harness.process.cdp.subscribe(
        tab.session_id, lambda event: methods.append(event.method) if event.method == "Runtime.bindingCalled" else None
    )
    await harness.run("(async () => { for (let n = 0; n < 500; n++) { document.title = `n${n}`; await null } })()")
    assert 1 <= len(methods) <= 60
    await eventually(lambda: tab.title == "n499")
    stop()


async def test_a_page_is_opened_judged_and_told_of(harness: PageHarness) -> None:
    outcome = await harness.go()
    assert (outcome.url, outcome.title, outcome.status) == (harness.site.url("/"), "Shop", 200)
    assert not outcome.loading and outcome.dialog is None and outcome.refused == ()
    assert harness.judge.documents[0] == harness.site.url("/")
    missing = await harness.go("/missing")
    assert (missing.status, missing.title) == (404, "Missing")
    seen = await harness.pages.observe(ObserveAsk())
    assert [tab.active for tab in seen.tabs] == [True]


async def test_a_page_that_the_judge_refuses_is_never_asked_for(harness: PageHarness) -> None:
    with pytest.raises(NotAllowed):
        await harness.go("/", EVIL)
    assert harness.site.asked == []
    with pytest.raises(SchemeRefused):
        await harness.pages.perform(Navigate(url="file:///etc/passwd"))
    with pytest.raises(NavigationFailed) as failed:
        await harness.pages.perform(Navigate(url=f"http://{SHOP}:1/"))
    assert failed.value.details["net_error"].startswith("net::ERR_")


async def test_back_forward_and_once_more(harness: PageHarness) -> None:
    harness.site.pages["/two"] = "<title>Two</title>"
    await harness.go()
    await harness.go("/two")
    assert (await harness.pages.perform(Back())).title == "Shop"
    assert (await harness.pages.perform(Forward())).title == "Two"
    harness.site.pages["/two"] = "<title>Another</title>"
    assert (await harness.pages.perform(Reload())).title == "Another"
    with pytest.raises(NoHistory):
        await harness.pages.perform(Forward())
    await harness.run("history.pushState({}, '', '/two?x')")
    within = await harness.pages.perform(Back())
    assert within.url == harness.site.url("/two")


async def test_a_click_that_navigates_is_waited_for(harness: PageHarness) -> None:
    harness.site.pages["/links"] = "<a id=a href=/two>two</a><a id=b href='#here'>here</a>"
    harness.site.pages["/two"] = "<title>Two</title>"
    await harness.go("/links")
    assert (await harness.click("#b")).url == harness.site.url("/links#here")
    outcome = await harness.click("#a")
    assert (outcome.title, outcome.url, outcome.status) == ("Two", harness.site.url("/two"), 200)


@pytest.mark.promise("P-browser-target")
async def test_tabs_are_opened_switched_and_closed_and_no_id_comes_back(harness: PageHarness) -> None:
    first = harness.pages.tabs()[0].tab
    second = (await harness.pages.perform(OpenTab(url=harness.site.url("/")))).tab
    assert [tab.active for tab in harness.pages.tabs()] == [False, True]
    assert (await harness.pages.perform(SwitchTab(tab=first))).tab == first
    assert (await harness.pages.perform(CloseTab(tab=second))).tab == first
    third = (await harness.pages.perform(OpenTab())).tab
    assert third not in (first, second)
    with pytest.raises(UnknownTab):
        await harness.pages.perform(SwitchTab(tab=second))
    with pytest.raises(BadAction):
        await harness.pages.perform(SwitchTab())
    # Closing the last one leaves a blank one.
    await harness.pages.perform(CloseTab(tab=third))
    outcome = await harness.pages.perform(CloseTab())
    assert outcome.url == "about:blank"
    assert [tab.tab for tab in harness.pages.tabs()] == [outcome.tab] and outcome.tab not in (first, second, third)


async def test_a_popup_is_a_new_tab_with_its_opener(harness: PageHarness) -> None:
    harness.site.pages["/popper"] = (
        "<a id=a href=/two target=_blank rel=opener>x</a><a id=b href=/two target=_blank>x</a>"
    )
    harness.site.pages["/two"] = "<title>Two</title>"
    opener = (await harness.go("/popper")).tab
    for link in ("#a", "#b"):
        outcome = await harness.click(link)
        (popup,) = outcome.new_tabs
        assert (popup.url, popup.opener, popup.active) == (harness.site.url("/two"), opener, False)
        assert outcome.tab == opener
        await harness.pages.perform(CloseTab(tab=popup.tab))


async def test_dialogs_stop_their_tab_until_they_are_answered(harness: PageHarness) -> None:
    harness.site.pages["/ask"] = f"""<button onclick="document.title = prompt('Name? {SECRET}', 'nobody')">x</button>"""
    await harness.go("/ask")
    outcome = await harness.click("button")
    assert outcome.dialog is not None
    assert (outcome.dialog.kind, outcome.dialog.default_text) == ("prompt", "nobody")
    assert outcome.dialog.message == "Name? [redacted]"
    for attempt in (harness.click("button"), harness.go(), harness.pages.observe(ObserveAsk())):
        with pytest.raises(DialogOpen) as refused:
            await attempt
        assert SECRET not in refused.value.message
    answered = await harness.pages.perform(HandleDialog(accept=True, text="Ada"))
    assert answered.dialog is None
    assert (await harness.run("document.title")).value_json == '"Ada"'
    with pytest.raises(NoDialog):
        await harness.pages.perform(HandleDialog(accept=True))


async def test_a_page_may_ask_before_it_is_left(harness: PageHarness) -> None:
    harness.site.pages["/form"] = "<title>Form</title><button onclick='window.onbeforeunload = () => true'>x</button>"
    await harness.go("/form")
    await harness.click("button")
    stays = await harness.go()
    assert stays.dialog is not None and stays.dialog.kind == "beforeunload"
    assert (await harness.pages.perform(HandleDialog(accept=False))).title == "Form"
    assert (await harness.go()).dialog is not None
    assert (await harness.pages.perform(HandleDialog(accept=True))).title == "Shop"


async def test_frames_of_other_sites_and_their_worlds(harness: PageHarness) -> None:
    harness.site.pages["/framed"] = f"<iframe src='http://{OTHER}:PORT/inner'></iframe><iframe src=/inner></iframe>"
    harness.site.pages["/inner"] = "<p id=p>inside</p><script>var mine = 1</script>"
    await harness.go("/framed")
    tab = harness.pages.active_tab()
    frames = tab.frames()
    assert [frame.url for frame in frames[1:]] == [harness.site.url("/inner", OTHER), harness.site.url("/inner")]
    assert frames[0].session_id == frames[2].session_id != frames[1].session_id
    for frame in frames[1:]:
        world = await tab.world(frame)
        assert world == await tab.world(frame)
        params = {"expression": "[document.body.innerText, typeof mine]", "contextId": world, "returnByValue": True}
        answer = await tab.cdp.send("Runtime.evaluate", params, frame.session_id)
        assert answer["result"]["value"] == ["inside", "undefined"]
    await harness.run("document.querySelectorAll('iframe').forEach((each) => each.remove())")
    await eventually(lambda: len(tab.frames()) == 1)


@pytest.mark.promise("P-secret-typed")
async def test_console_and_network_are_told_without_secrets(harness: PageHarness) -> None:
    harness.site.pages["/noisy"] = (
        200,
        {"Set-Cookie": "login=very-private"},
        f"""<script>
        console.error('bad', '{SECRET}');
        fetch('/gone?{SECRET}', {{headers: {{Authorization: 'Bearer abcd'}}}}).then((reply) => reply.text());
        nothing.at.all
        </script>""",
    )
    outcome = await harness.go("/noisy", wait=LoadState.IDLE)
    assert "bad [redacted]" in outcome.console_errors
    assert any("nothing is not defined" in text for text in outcome.console_errors)
    logged = [(entry.method, entry.url, entry.status) for entry in harness.pages.network_log()]
    assert ("GET", harness.site.url("/noisy"), 200) in logged
    assert ("GET", harness.site.url("/gone?[redacted]"), 404) in logged
    cookies = await harness.pages.cookies()
    assert [cookie["name"] for cookie in cookies] == ["login"]
    everything = repr((harness.pages.network_log(), harness.pages.console_log(), outcome, cookies))
    for private in (SECRET, "very-private", "Bearer"):
        assert private not in everything


async def test_a_clean_slate_keeps_nothing(harness: PageHarness) -> None:
    await harness.go()
    await harness.run("localStorage.kept = 1; document.cookie = 'kept=1; max-age=1000'")
    origin = f"http://{SHOP}:{harness.site.port}"
    await harness.pages.perform(SetPermissions(origin=origin, grant=("geolocation",)))
    assert harness.pages.permissions() == {origin: ("geolocation",)}
    await harness.pages.perform(OpenTab())
    outcome = await harness.pages.perform(ResetState())
    assert (outcome.url, len(harness.pages.tabs())) == ("about:blank", 1)
    assert harness.pages.permissions() == {} and await harness.pages.cookies() == ()
    await harness.go()
    assert (await harness.run("[localStorage.kept, document.cookie]")).value_json == '[null, ""]'


async def test_viewport_printing_and_scripts(harness: PageHarness) -> None:
    await harness.go()
    await harness.pages.perform(SetViewport(width=640, height=480, scale=2))
    size = "[innerWidth, innerHeight, devicePixelRatio]"
    assert json.loads((await harness.run(size)).value_json) == [640, 480, 2]
    opened = await harness.pages.perform(OpenTab(url=harness.site.url("/")))
    assert json.loads((await harness.run(size, opened.tab)).value_json) == [640, 480, 2]
    with pytest.raises(BadAction):
        await harness.pages.perform(SetViewport(width=10, height=480))
    pdf = await harness.pages.perform(ExportPdf())
    assert pdf.media_type == "application/pdf" and pdf.content.startswith(b"%PDF")
    returned = await harness.pages.perform(Evaluate(expression=f"Promise.resolve({{a: ['{SECRET}']}})"))
    assert json.loads(returned.value_json) == {"a": ["[redacted]"]}


@pytest.mark.promise("P-browser-target")
async def test_actions_run_one_at_a_time_in_the_order_of_asking(harness: PageHarness) -> None:
    harness.site.pages["/two"] = "<title>Two</title>"
    await harness.go()
    first, second, third = await asyncio.gather(harness.go("/two"), harness.run("document.title"), harness.go("/"))
    assert (first.title, second.value_json, third.title) == ("Two", '"Two"', "Shop")


async def test_a_browser_whose_first_page_never_comes_is_late_and_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_tabs, "START_SECONDS", 0.0)
    async with page_harness(tmp_path) as harness:
        with pytest.raises(PageTimeout, match="first page was not ready"):
            await harness.open()
