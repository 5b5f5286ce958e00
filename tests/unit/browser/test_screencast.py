"""Watching a session and taking it over, in a real Chromium."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes.eventually import eventually
from fakes.page_harness import SECRET, PageHarness, page_harness
from palyra.browser.domain.action import BadAction, OpenTab, SwitchTab
from palyra.browser.domain.page_errors import DialogOpen, NotTakenOver, TakenOver
from palyra.browser.domain.session_api import LiveFrame, OperatorDoes, OperatorInput
from palyra.browser.tabs.screencast import MAX_WATCHERS, TooManyWatchers

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADA = "user:ada"
FORM = """<body style='margin:0'><input style='position:absolute;left:0;top:0;width:200px;height:40px'>
<button style='position:absolute;left:0;top:100px;width:200px;height:40px'
 onclick="document.title = document.querySelector('input').value">x</button>
<div style='height:5000px'></div>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageHarness]:
    async with page_harness(tmp_path_factory.mktemp("live")) as harness:
        harness.site.pages["/form"] = FORM
        await harness.open(max_action_timeout_ms=1_500)
        yield harness


async def newest(frames: AsyncIterator[LiveFrame], tab: str) -> LiveFrame:
    async with asyncio.timeout(60):
        async for frame in frames:
            if frame.tab == tab:
                return frame
    raise AssertionError("no picture came")


async def test_a_watcher_sees_the_active_tab_and_follows_it(harness: PageHarness) -> None:
    first = (await harness.go(f"/form?{SECRET}")).tab
    frames = harness.pages.live.frames()
    frame = await newest(frames, first)
    assert frame.picture.startswith(b"\xff\xd8") and frame.width > 0 and frame.at_ms > 0
    assert frame.url.endswith("/form?[redacted]")
    second = (await harness.pages.perform(OpenTab(url=harness.site.url("/form")))).tab
    assert (await newest(frames, second)).tab == second
    await harness.pages.perform(SwitchTab(tab=first))
    assert (await newest(frames, first)).tab == first
    await frames.aclose()  # type: ignore[attr-defined]


@pytest.mark.promise("P-limits")
async def test_only_so_many_may_watch(harness: PageHarness) -> None:
    tab = (await harness.go("/form")).tab
    watching = [harness.pages.live.frames() for _ in range(MAX_WATCHERS)]
    for frames in watching:
        await newest(frames, tab)
    with pytest.raises(TooManyWatchers):
        await anext(harness.pages.live.frames())
    for frames in watching:
        await frames.aclose()  # type: ignore[attr-defined]
    frames = harness.pages.live.frames()
    await newest(frames, tab)
    await frames.aclose()  # type: ignore[attr-defined]


@pytest.mark.promise("P-browser-handover")
async def test_a_person_takes_over_works_and_hands_back(harness: PageHarness) -> None:
    live = harness.pages.live
    await harness.go("/form")
    for nobodys in (live.operate(ADA, OperatorInput(does=OperatorDoes.KEY, key="Tab")),):
        with pytest.raises(NotTakenOver):
            await nobodys
    with pytest.raises(NotTakenOver):
        live.hand_back(ADA)
    await live.take_over(ADA)
    assert live.taken_by == ADA
    with pytest.raises(TakenOver):
        await live.take_over("user:bob")
    # The agent is told, and what it wanted is not done.
    with pytest.raises(TakenOver) as refused:
        await harness.run("document.title = 'agent'")
    assert refused.value.details["by"] == ADA
    for given in (
        OperatorInput(does=OperatorDoes.CLICK, x=20, y=20),
        OperatorInput(does=OperatorDoes.TYPE, text="Ada"),
        OperatorInput(does=OperatorDoes.KEY, key="!"),
        OperatorInput(does=OperatorDoes.KEY, key="Shift+a"),
        OperatorInput(does=OperatorDoes.KEY, key="Backspace"),
        OperatorInput(does=OperatorDoes.MOVE, x=30, y=120),
        OperatorInput(does=OperatorDoes.CLICK, x=30, y=120),
        OperatorInput(does=OperatorDoes.SCROLL, x=300, y=300, dy=400),
    ):
        await live.operate(ADA, given)
    for odd in (OperatorInput(does=OperatorDoes.TYPE), OperatorInput(does=OperatorDoes.TYPE, text="x" * 9_000)):
        with pytest.raises(BadAction):
            await live.operate(ADA, odd)
    with pytest.raises(NotTakenOver):
        await live.operate("user:bob", OperatorInput(does=OperatorDoes.CLICK))
    # An action that was asked for meanwhile is done once the session is handed back.
    waiting = asyncio.create_task(harness.run("document.title"))
    await asyncio.sleep(0)
    live.hand_back(ADA)
    assert (await waiting).value_json == '"Ada!"'
    assert live.taken_by == ""


async def test_a_person_answers_a_dialog_with_enter_or_escape(harness: PageHarness) -> None:
    live = harness.pages.live
    await harness.go("/form")
    await harness.run(
        "globalThis.answers = []; document.querySelector('button').onclick = () => answers.push(confirm('sure?'))"
    )
    await live.take_over(ADA)
    for key in ("Enter", "Escape"):
        await live.operate(ADA, OperatorInput(does=OperatorDoes.CLICK, x=20, y=120))
        await eventually(lambda: harness.pages.active_tab().dialog() is not None)
        with pytest.raises(DialogOpen):
            await live.operate(ADA, OperatorInput(does=OperatorDoes.CLICK, x=20, y=120))
        await live.operate(ADA, OperatorInput(does=OperatorDoes.KEY, key=key))
    live.hand_back(ADA)
    assert (await harness.run("answers")).value_json == "[true, false]"


async def test_pictures_have_the_pages_own_pixels(harness: PageHarness) -> None:
    tab = (await harness.go("/form")).tab
    frames = harness.pages.live.frames()
    frame = await newest(frames, tab)
    await frames.aclose()  # type: ignore[attr-defined]
    assert (frame.width, frame.height) == tuple(
        int(each) for each in (await harness.run("innerWidth + 'x' + innerHeight")).value_json.strip('"').split("x")
    )
