"""The supervisor, the link, results, specs and sessions of browser calls, each by itself."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.browsing import Agent, browsing, opened
from fakes.eventually import eventually
from fakes.memory_browser import FENCES, MemoryBrowser
from palyra.browser.domain.action import ActionOutcome, ChromiumObserveSnapshot, SnapshotForm
from palyra.browser.domain.page_errors import DocumentGone
from palyra.browser.domain.session_api import Caller, NoSuchSession, SessionAsk
from palyra.browser.engine.isolation_layers import IsolationLayer
from palyra.browser.service import connection
from palyra.browser.service.access import BrowserAway
from palyra.browser.service.connection import BrowserLink, BrowserUnavailable
from palyra.executors.browser import results
from palyra.executors.browser.arguments import Reach
from palyra.executors.browser.spec import actions_of, browser_specs
from palyra.pipeline.domain.call import CallState
from palyra.pipeline.domain.spec import ToolCapability, ToolTier
from palyra.store.port import DiskFull
from palyra.store.sqlite.writer import DiskReserve


async def nothing(_: Any) -> None:
    pass


async def test_a_browser_daemon_that_is_not_there_is_not_waited_for_without_a_trace_of_one(tmp_path: Path) -> None:
    link = BrowserLink(tmp_path / "run", tmp_path / "log", nothing)
    with pytest.raises(BrowserUnavailable, match="no browser daemon runs") as caught:
        await link.client()
    assert "palyra up" in caught.value.hint and not link.connected


async def test_one_that_is_being_started_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, tries = MemoryBrowser(), 0
    link = BrowserLink(tmp_path / "run", tmp_path / "log", nothing)
    (tmp_path / "log").touch()

    async def connect() -> MemoryBrowser:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise BrowserUnavailable("not yet")
        return browser

    monkeypatch.setattr(link, "_connect", connect)
    assert await link.client() is browser and tries == 3
    # The one that was given up is closed when the next is, not under the calls that still have it.
    await link.lost(browser)  # type: ignore[arg-type]
    assert not link.connected and not browser.closed
    await link.close()
    assert browser.closed
    monkeypatch.setattr(connection, "WAIT_SECONDS", 0.0)
    tries = -10
    with pytest.raises(BrowserUnavailable):
        await link.client()


async def test_sessions_that_nobody_owns_any_more_are_closed_when_a_daemon_connects(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        stray = await browser.create_session(Caller(principal="agent:late"), SessionAsk(hosts=("shop.test",)))
        await harness.gateway.browser.supervisor._end_strangers(browser)  # type: ignore[arg-type]
        assert list(browser.sessions_by_id) == [agent.session] and stray.session_id not in browser.sessions_by_id


async def test_a_session_that_ends_by_itself_is_on_record_and_gone(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        session = browser.sessions_by_id[agent.session]
        await browser.tell(session, "browser.session_failed", code="browser.network_service_died", text="it died")
        await browser.tell(session, "browser.session_closed", text="its browser broke")
        await browser.end(agent.session)
        await eventually(lambda: harness.events(kind="browser.session_closed"))
        (failed,) = harness.events(kind="browser.session_failed")
        assert failed[1]["code"] == "browser.network_service_died"
        assert harness.events(kind="browser.session_closed")[0][1]["reason"] == "its browser broke"
        record = await agent.call("browser.snapshot")
        assert record.error is not None and record.error["code"] == "browser.unknown_session"


async def test_a_browser_daemon_that_goes_away_is_told_as_that(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        browser.gone = BrowserAway("the browser daemon did not answer: unavailable")
        record = await agent.call("browser.snapshot")
        assert record.state is CallState.FAILED and record.error is not None
        assert record.error["code"] == "browser.unavailable" and "palyra up" in record.error["hint"]
        browser.gone = None


async def test_a_page_that_moves_on_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        real, looks = browser.observe, 0

        async def moving(*asked: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks < 3:
                raise DocumentGone("gone")
            return await real(*asked)

        monkeypatch.setattr(browser, "observe", moving)
        assert (await agent.call("browser.snapshot")).state is CallState.SUCCEEDED and looks == 3
        looks = -10
        clicked = await agent.call("browser.act", actions=[{"action": "click", "target": "e1"}], snapshot=True)
        # What was done is told, though what came of it could not be looked at.
        assert clicked.state is CallState.SUCCEEDED and clicked.result["done"] == 1
        assert clicked.result["snapshot_problem"]["code"] == "browser.document_gone"


def test_what_a_page_hides_from_people_is_hidden_from_models() -> None:
    hidden = "Buy\u200b\u202e now\U000e0041"
    snapshot = ChromiumObserveSnapshot(tab="t1", url="u", title=hidden, form=SnapshotForm.TEXT, text=hidden)
    shown = results.snapshot_view(snapshot)
    assert shown["text"] == shown["title"] == "Buy now"
    outcome = ActionOutcome(tab="t1", url="u", title=hidden, console_errors=(hidden,), value_json='{"a": 1}')
    view = results.outcome_view(outcome)
    assert view["console_errors"] == ["Buy now"] and view["value"] == {"a": 1} and "dialog" not in view


async def test_a_fence_that_the_operator_waived_is_told_as_down() -> None:
    browser = MemoryBrowser()
    view = await browser.create_session(Caller(principal="agent:a"), SessionAsk(hosts=("a.test",)))
    waived = msgspec.structs.replace(view, fences_waived=(FENCES.lines[0].fence.value,))
    assert FENCES.lines[0].fence is IsolationLayer.GUARD
    lines = results.receipt_of(waived, Reach(hosts=("a.test",)), ["b.test x"])
    assert "operator allows" in lines[0]["got"]
    assert lines[-1]["got"] == "1 refused: b.test x"


def test_every_tool_says_what_it_can_touch_and_take() -> None:
    specs = {str(spec.name): spec for spec in browser_specs(None)}
    assert all(spec.tier is ToolTier.BROWSER and spec.metadata.sensitive for spec in specs.values())
    assert ToolCapability.SECRETS_READ in specs["browser.act"].metadata.capabilities
    assert ToolCapability.FILESYSTEM_WRITE in specs["browser.downloads"].metadata.capabilities
    assert actions_of("browser.act", {"actions": [1, 2], "snapshot": True}) == 3
    assert actions_of("browser.open", {"url": "x"}) == 2 and actions_of("browser.tabs", {}) == 0


async def test_a_session_is_found_by_its_owner_in_its_run_alone(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, _):
        agent = await opened(harness)
        registry = harness.gateway.browser.registry
        assert registry.of("agent:bot", str(agent.run), agent.session).session_id == agent.session
        for principal, run in (("agent:eve", str(agent.run)), ("agent:bot", "other")):
            with pytest.raises(NoSuchSession):
                registry.of(principal, run, agent.session)


async def test_a_session_whose_opening_cannot_be_recorded_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(tmp_path) as (harness, browser):
        supervisor = harness.gateway.browser.supervisor
        record = supervisor.record

        async def full(session: Any, kind: str, **more: Any) -> None:
            if kind == "browser.session_opened":
                raise DiskFull("the disk is too full to record new work")
            await record(session, kind, **more)

        monkeypatch.setattr(supervisor, "record", full)
        agent = Agent(harness, await harness.open_run("agent:bot"))
        answer = await agent.call("browser.open", approve=True, hosts=["shop.test"])
        assert answer.error is not None and answer.error["code"] == "journal.disk_full"
        await eventually(lambda: harness.events(kind="browser.session_closed"))
        assert not browser.sessions_by_id and not list(supervisor.registry)


async def test_a_session_whose_doings_cannot_be_recorded_ends_alone_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent, other = await opened(harness), await opened(harness)
        with monkeypatch.context() as patch:
            patch.setattr(DiskReserve, "is_held", lambda _: False)
            patch.setattr(DiskReserve, "secure", lambda _: False)
            failing = browser.sessions_by_id[agent.session]
            await browser.tell(failing, "browser.session_failed", code="browser.tab_crashed", text="it died")
            closed = await eventually(lambda: harness.events(kind="browser.session_closed"))
        assert "cannot be recorded: the disk is too full" in closed[0][1]["reason"]
        assert agent.session not in browser.sessions_by_id
        assert not browser.closed, "the browser daemon is not given up"
        await browser.tell(browser.sessions_by_id[other.session], "browser.session_closed", text="by itself")
        await browser.end(other.session)
        await eventually(lambda: len(harness.events(kind="browser.session_closed")) >= 2)
    assert "Traceback" not in caplog.text


async def test_the_end_of_a_session_is_recorded_when_the_disk_is_too_full_for_new_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        # As the writer finds it when another process has taken the space that is held back, and no more is to be had.
        monkeypatch.setattr(DiskReserve, "is_held", lambda _: False)
        monkeypatch.setattr(DiskReserve, "secure", lambda _: False)
        with pytest.raises(DiskFull):
            await harness.call("echo", {"text": "new work"})
        await browser.end(agent.session)
        await eventually(lambda: harness.events(kind="browser.session_closed"))
        monkeypatch.undo()
    assert "Traceback" not in caplog.text
