"""The beginning of a session: budgets clamped, parts in order, what was left there again, all of it or nothing."""

from pathlib import Path

import pytest

from fakes.session_harness import Broken, SessionHarness
from palyra.browser.domain.action import SetViewport
from palyra.browser.domain.budget import BadBudget
from palyra.browser.domain.session_api import Caller, SessionAsk
from palyra.browser.service.session_lifecycle import BadSessionHosts, end_session
from palyra.browser.tabs.download_folder import Announced
from palyra.ids import Ulid

ANNA = Caller(principal="agent:anna", run_id="R", call_id="C")
ID = str(Ulid.new())


@pytest.mark.promise("P-budget-own")
async def test_a_budget_can_only_be_smaller_than_the_ceiling(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path, max_tabs_per_session=4)
    asked = {"max_tabs_per_session": 9, "max_log_entries": 3}
    session = await harness.maker.open(ID, ANNA, SessionAsk(budget=asked), None)
    budget = session.meter.budget
    assert (budget.max_tabs_per_session, budget.max_log_entries, budget.max_log_bytes) == (4, 3, 64 * 1024)
    await end_session(session, harness.store, discard=True)


async def test_what_is_wrong_with_the_wish_is_found_before_a_browser_is_taken(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path)
    for ask, error in (
        (SessionAsk(budget={"wings": 2}), BadBudget),
        (SessionAsk(private_targets=("a.example:80",)), BadSessionHosts),
    ):
        with pytest.raises(error):
            await harness.maker.open(ID, ANNA, ask, None)
    assert harness.processes == []


async def test_the_profile_s_last_state_is_there_again(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path)
    profile = harness.store.create("agent:anna", "work")
    first = await harness.maker.open(ID, ANNA, SessionAsk(), profile)
    harness.processes[0].cdp.cookies = [
        {"name": "s", "value": "v", "domain": "a.example", "path": "/", "session": True}
    ]
    await end_session(first, harness.store, discard=False)
    profile = harness.store.get("agent:anna", profile.profile_id)
    again = await harness.maker.open(ID, ANNA, SessionAsk(viewport_width=300, viewport_height=200), profile)
    assert b"Cookies" in harness.archives[0]
    permissions, tabs = harness.pages[1].restored
    assert permissions == {"https://a.example": ("geolocation",)} and tabs[0].url == "https://a.example/"
    method, params = harness.processes[1].cdp.sent[0]
    assert method == "Storage.setCookies" and params["cookies"][0]["name"] == "s"
    assert harness.pages[1].performed == [SetViewport(width=300, height=200)]
    await end_session(again, harness.store, discard=True)


async def test_what_cannot_be_restored_is_on_record_and_no_reason_not_to_begin(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path)
    profile = harness.store.create("agent:anna", "work")
    await end_session(await harness.maker.open(ID, ANNA, SessionAsk(), profile), harness.store, discard=False)
    open_pages = harness.maker.open_pages

    async def failing(needs: object) -> object:
        pages = await open_pages(needs)  # type: ignore[arg-type]

        async def restore_tabs(tabs: object) -> tuple[str, ...]:
            raise Broken("gone")

        pages.restore_tabs = restore_tabs  # type: ignore[assignment, method-assign]
        return pages

    harness.maker.open_pages = failing  # type: ignore[assignment]
    session = await harness.maker.open(ID, ANNA, SessionAsk(), harness.store.get("agent:anna", profile.profile_id))
    assert [(event.kind, event.code) for event in session.log.after(1)] == [("browser.not_restored", "test.broken")]
    await end_session(session, harness.store, discard=True)


async def test_a_download_that_ended_is_an_event(tmp_path: Path) -> None:
    import asyncio

    harness = SessionHarness(tmp_path)
    session = await harness.maker.open(ID, ANNA, SessionAsk(), None)
    downloads = session.downloads
    guid = "0123456789abcdef"
    downloads.begin(Announced(guid=guid, suggested_name="a.csv", source="https://a.example/a.csv"))
    (harness.processes[0].downloads / guid).write_bytes(b"a,b\n1,2\n")
    record = await asyncio.to_thread(downloads.finish, guid, complete=True)
    await asyncio.sleep(0)
    (event,) = session.log.after(1)
    assert event.kind == "browser.downloaded" and record.digest in event.text and event.code == ""
    await end_session(session, harness.store, discard=True)
