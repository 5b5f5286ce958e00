"""The end of a session: what is kept, what is not, and that nothing stays open whatever goes wrong on the way."""

from pathlib import Path
from typing import Any

import pytest

from fakes.session_harness import Broken, SessionHarness
from palyra.browser.domain.session_api import Caller, SessionAsk
from palyra.browser.service.session import BrowserSession
from palyra.browser.service.session_lifecycle import end_session
from palyra.ids import Ulid

ANNA = Caller(principal="agent:anna")


@pytest.fixture
def harness(tmp_path: Path) -> SessionHarness:
    return SessionHarness(tmp_path)


async def opened(harness: SessionHarness, *, private: bool = False) -> BrowserSession:
    profile = harness.store.create("agent:anna", "work", persistence=not private, private=private)
    return await harness.maker.open(str(Ulid.new()), ANNA, SessionAsk(profile_id=profile.profile_id), profile)


async def test_a_persistent_profile_keeps_files_tabs_permissions_and_session_cookies(harness: SessionHarness) -> None:
    session = await opened(harness)
    harness.processes[0].cdp.cookies = [
        {"name": "sid", "value": "v", "domain": "a.example", "path": "/", "session": True},
        {"name": "kept", "value": "v", "domain": "a.example", "path": "/", "session": False, "expires": 4e9},
    ]
    assert (await end_session(session, harness.store, discard=False)).saved
    assert session.profile is not None
    kept = harness.store.load("agent:anna", session.profile.profile_id)
    assert kept is not None and b"Cookies" in kept.archive
    assert [tab.url for tab in kept.tabs] == ["https://a.example/"]
    assert kept.permissions == {"https://a.example": ("geolocation",)}
    assert b"sid" in kept.session_cookies and b"kept" not in kept.session_cookies


@pytest.mark.parametrize("how", ["discard", "private"])
async def test_what_is_not_to_be_kept_is_killed_and_not_asked(harness: SessionHarness, how: str) -> None:
    session = await opened(harness, private=how == "private")
    report = await end_session(session, harness.store, discard=how == "discard")
    assert (report.saved, report.problem_code) == (False, "")
    assert harness.processes[0].closed == [False] and harness.processes[0].cdp.sent == []
    assert harness.pages[0].closed and harness.guards[0].listener.fileno() == -1


@pytest.mark.promise("P-browser-profile")
async def test_a_browser_that_had_to_be_killed_does_not_replace_the_profile(harness: SessionHarness) -> None:
    harness.clean = False
    session = await opened(harness)
    report = await end_session(session, harness.store, discard=False)
    assert (report.saved, report.problem_code) == (False, "browser.profile_not_saved")
    assert session.profile is not None
    assert harness.store.get("agent:anna", session.profile.profile_id).revision == 0


async def test_pages_that_hang_or_fail_cost_their_tabs_only(harness: SessionHarness) -> None:
    session = await opened(harness)

    def failing() -> Any:
        raise Broken("no tabs")

    harness.pages[0].saved = failing

    async def close() -> None:
        raise Broken("not closed")

    harness.pages[0].close = close  # type: ignore[method-assign]
    report = await end_session(session, harness.store, discard=False)
    assert report.saved and harness.guards[0].listener.fileno() == -1


async def test_a_profile_that_changed_meanwhile_is_not_overwritten(harness: SessionHarness) -> None:
    session = await opened(harness)
    assert session.profile is not None
    harness.store.reset("agent:anna", session.profile.profile_id)
    report = await end_session(session, harness.store, discard=False)
    assert (report.saved, report.problem_code) == (False, "browser.profile_changed")
