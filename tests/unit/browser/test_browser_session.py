"""One session: what it counts, records and refuses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.session_harness import Broken, SessionHarness
from palyra.browser.domain.action import Click, ElementTarget, ObserveAsk, Screenshot, SetFileInput, Type, Upload
from palyra.browser.domain.budget import BudgetSpent
from palyra.browser.domain.limits import MAX_UPLOAD_BYTES, MAX_WAITING_EVENTS, MAX_WATCHERS
from palyra.browser.domain.session_api import (
    ACTED,
    OBSERVED,
    OPENED,
    REFUSED,
    BadRequest,
    Caller,
    SessionAsk,
    SessionEvent,
    WatchAsk,
)
from palyra.browser.service.session import BrowserSession
from palyra.browser.service.session_lifecycle import end_session
from palyra.browser.tabs.screencast import TooManyWatchers
from palyra.egress.domain.events import Refused
from palyra.egress.domain.refusal import HostNotAllowed
from palyra.ids import Ulid
from palyra.secret import Secret

ANNA = Caller(principal="agent:anna", call_id="C")
TARGET = ElementTarget(ref="e1")


@pytest_asyncio.fixture
async def harness(tmp_path: Path) -> AsyncIterator[tuple[SessionHarness, BrowserSession]]:
    harness = SessionHarness(tmp_path)
    session = await harness.maker.open(str(Ulid.new()), ANNA, SessionAsk(budget={"max_network_bytes": 100}), None)
    yield harness, session
    session.over.set()
    await end_session(session, harness.store, discard=True)


Pair = tuple[SessionHarness, BrowserSession]


async def test_actions_are_recorded_with_their_outcome_and_a_batch_ends_with_its_first_failure(harness: Pair) -> None:
    parts, session = harness
    assert (await session.act(ANNA, [Click(target=TARGET), Screenshot()])).problem is None
    parts.pages[0].problem = Broken("no")
    report = await session.act(ANNA, [Click(target=TARGET), Screenshot()], picture_on_failure=True)
    assert isinstance(report.problem, Broken) and report.outcomes == () and report.picture is None
    with pytest.raises(Broken):
        await session.observe(ANNA, ObserveAsk())
    events = [(event.kind, event.code, event.call_id) for event in session.log.after(1)]
    assert events == [
        *((ACTED, "", "C"), (ACTED, "", "C"), (ACTED, "test.broken", "C"), (OBSERVED, "test.broken", "C")),
    ]


async def test_a_typed_secret_is_known_from_then_on(harness: Pair) -> None:
    _, session = harness
    await session.perform(ANNA, Type(target=TARGET, secret=Secret("correct horse"), origins=("https://a.example",)))
    assert session.redactor.text("it is correct horse") == "it is [redacted]"


async def test_when_all_bytes_are_spent_nothing_more_is_begun(harness: Pair) -> None:
    parts, session = harness
    parts.guards[0].bytes = 100
    with pytest.raises(BudgetSpent) as spent:
        await session.perform(ANNA, Screenshot())
    assert spent.value.details["field"] == "max_network_bytes"
    assert session.view().spent["max_network_bytes"] == 100


@pytest.mark.promise("P-limits")
async def test_uploads_are_bounded(harness: Pair) -> None:
    _, session = harness
    files = (Upload(name="a", content=b"x" * MAX_UPLOAD_BYTES), Upload(name="b", content=b"y"))
    with pytest.raises(BadRequest):
        await session.perform(ANNA, SetFileInput(target=TARGET, files=files))


async def test_a_dead_browser_is_told_as_what_it_died_of(harness: Pair) -> None:
    parts, session = harness
    parts.processes[0].failure = Broken("it fell over")
    with pytest.raises(Broken, match="it fell over"):
        session.use()


async def test_what_the_guard_refuses_is_an_event(harness: Pair) -> None:
    parts, session = harness
    parts.guards[0].happened(Refused.of(HostNotAllowed("no", host="evil.test", port=80), "socks5"))
    (event,) = session.log.after(1)
    assert (event.kind, event.code) == (REFUSED, "egress.host_not_allowed") and "evil.test:80" in event.text


async def test_a_watcher_gets_what_was_and_what_comes_and_a_slow_one_is_let_go(harness: Pair) -> None:
    _, session = harness
    watching = session.watch(WatchAsk(frames=False))
    first = await anext(watching)
    assert isinstance(first, SessionEvent) and first.kind == OPENED
    following = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    for _ in range(MAX_WAITING_EVENTS + 5):
        session.log.add(ACTED)
    assert isinstance(await following, SessionEvent)
    assert len([each async for each in watching]) < MAX_WAITING_EVENTS + 5


@pytest.mark.promise("P-limits")
async def test_watchers_are_few(harness: Pair) -> None:
    _, session = harness
    watchers = [session.watch(WatchAsk()) for _ in range(MAX_WATCHERS)]
    for each in watchers:
        await anext(each)
    with pytest.raises(TooManyWatchers):
        await anext(session.watch(WatchAsk()))
    for each in watchers:
        await each.aclose()  # type: ignore[attr-defined]
    assert isinstance(await anext(session.watch(WatchAsk())), SessionEvent)
