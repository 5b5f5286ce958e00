"""All sessions: places, profiles and ends, also when opening fails, is interrupted, or the daemon stops meanwhile."""

import asyncio
from pathlib import Path

import pytest

from fakes.session_harness import Broken, SessionHarness
from palyra.browser.domain.budget import SessionOver
from palyra.browser.domain.profile import NoSuchProfile
from palyra.browser.domain.session_api import BadRequest, Caller, NoSuchSession, SessionAsk
from palyra.browser.service.session_manager import ProfileInUse, SessionManager, Stopping, TooManySessions

ANNA, BEN, OPERATOR = Caller(principal="agent:anna"), Caller(principal="user:ben"), Caller(operator="user:o")


@pytest.fixture
def harness(tmp_path: Path) -> SessionHarness:
    return SessionHarness(tmp_path)


def manager(harness: SessionHarness, **more: int) -> SessionManager:
    return SessionManager(harness.maker, **more)


@pytest.mark.promise("P-limits")
async def test_places_are_limited_and_given_back_when_everything_is_gone(harness: SessionHarness) -> None:
    sessions = manager(harness, max_sessions=3, max_per_principal=2)
    first = await sessions.create(ANNA, SessionAsk())
    await sessions.create(ANNA, SessionAsk())
    with pytest.raises(TooManySessions):
        await sessions.create(ANNA, SessionAsk())
    await sessions.create(BEN, SessionAsk())
    with pytest.raises(TooManySessions):
        await sessions.create(Caller(principal="agent:third"), SessionAsk())
    await sessions.close(first)
    await sessions.create(Caller(principal="agent:third"), SessionAsk())
    assert len(sessions.sessions(OPERATOR)) == 3
    assert len(sessions.sessions(Caller(operator="user:o", principal="user:ben"))) == 1
    await sessions.close_all()
    assert len(sessions) == 0 and all(process.closed for process in harness.processes)


@pytest.mark.parametrize("step", ["browser", "guard", "pages"])
async def test_a_session_that_cannot_be_opened_leaves_nothing(harness: SessionHarness, step: str) -> None:
    sessions = manager(harness, max_sessions=1)
    profile = harness.store.create("agent:anna", "work").profile_id
    harness.fail_at = step
    with pytest.raises(Broken, match=step):
        await sessions.create(ANNA, SessionAsk(profile_id=profile))
    assert sessions.session_of_profile(profile) == ""
    assert all(process.closed == [False] for process in harness.processes)
    assert all(guard.listener.fileno() == -1 for guard in harness.guards)
    assert list((harness.folder / "sessions").iterdir()) == []
    harness.fail_at = ""
    await sessions.create(ANNA, SessionAsk(profile_id=profile))
    await sessions.close_all()


async def test_an_opening_that_is_cancelled_gives_its_place_back(harness: SessionHarness) -> None:
    sessions = manager(harness, max_sessions=1)
    harness.gate = asyncio.Event()
    opening = asyncio.create_task(sessions.create(ANNA, SessionAsk()))
    await asyncio.sleep(0)
    with pytest.raises(TooManySessions):
        await sessions.create(BEN, SessionAsk())
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    harness.gate.set()
    await sessions.create(BEN, SessionAsk())
    await sessions.close_all()


async def test_a_daemon_that_stops_closes_what_was_just_opened(harness: SessionHarness) -> None:
    sessions = manager(harness)
    harness.gate = asyncio.Event()
    opening = asyncio.create_task(sessions.create(ANNA, SessionAsk()))
    await asyncio.sleep(0)
    await sessions.close_all()
    harness.gate.set()
    with pytest.raises(Stopping):
        await opening
    with pytest.raises(Stopping):
        await sessions.create(ANNA, SessionAsk())
    assert len(sessions) == 0 and harness.processes[0].closed == [False]


async def test_a_profile_is_one_session_s_and_its_owner_s(harness: SessionHarness) -> None:
    sessions = manager(harness)
    profile = harness.store.create("agent:anna", "work").profile_id
    with pytest.raises(NoSuchProfile):
        await sessions.create(BEN, SessionAsk(profile_id=profile))
    first = await sessions.create(ANNA, SessionAsk(profile_id=profile))
    with pytest.raises(ProfileInUse):
        await sessions.create(ANNA, SessionAsk(profile_id=profile))
    assert sessions.session_of_profile(profile) == first.session_id
    report = await sessions.close(first)
    assert (report.saved, report.revision) == (True, 1)
    assert sessions.session_of_profile(profile) == ""
    again = await sessions.create(ANNA, SessionAsk(profile_id=profile))
    assert harness.archives and again.persistent
    await sessions.close_all()
    assert harness.store.get("agent:anna", profile).revision == 2


async def test_closing_twice_is_closing_once(harness: SessionHarness) -> None:
    sessions = manager(harness)
    session = await sessions.create(ANNA, SessionAsk())
    first, second = await asyncio.gather(sessions.close(session), sessions.close(session))
    assert first is second and harness.processes[0].closed == [False]


async def test_another_s_session_and_none_are_the_same_and_an_ended_one_is_told_its_owner(
    harness: SessionHarness,
) -> None:
    sessions = manager(harness)
    session = await sessions.create(ANNA, SessionAsk())
    assert sessions.find(ANNA, session.session_id) is session
    assert sessions.find(OPERATOR, session.session_id) is session
    with pytest.raises(NoSuchSession) as foreign:
        sessions.find(BEN, session.session_id)
    with pytest.raises(NoSuchSession) as unknown:
        sessions.find(BEN, "01" + "A" * 24)
    assert foreign.value.as_dict().keys() == unknown.value.as_dict().keys()
    await sessions.close(session)
    for caller, error in ((ANNA, SessionOver), (OPERATOR, SessionOver), (BEN, NoSuchSession)):
        with pytest.raises(error):
            sessions.find(caller, session.session_id)


async def test_a_crash_is_told_as_what_it_was(harness: SessionHarness) -> None:
    sessions = manager(harness)
    session = await sessions.create(ANNA, SessionAsk())
    harness.processes[0].die(Broken("it fell over"))
    await session.over.wait()
    with pytest.raises(Broken, match="it fell over"):
        sessions.find(ANNA, session.session_id)
    assert [event.kind for event in session.log.after(1)] == ["browser.session_failed", "browser.session_closed"]
    assert len(sessions) == 0


async def test_a_label_is_one_short_line(harness: SessionHarness) -> None:
    for label in ("a\nb", "x" * 129):
        with pytest.raises(BadRequest):
            await manager(harness).create(ANNA, SessionAsk(label=label))
