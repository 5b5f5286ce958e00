"""What an operator does with browsers is done in the operator's name, on the owner's behalf, and on record."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from palyra.browser.domain.profile import NoSuchProfile
from palyra.browser.domain.session_api import Caller, CloseReport, ProfileView, SessionState, SessionView
from palyra.executors.browser.arguments import Reach
from palyra.executors.browser.operator_service import BrowserOperatorService
from palyra.executors.browser.session_registry import OwnedSession, SessionRegistry
from palyra.ids import Principal

BOSS = "user:boss"
VIEW = SessionView(
    session_id="S1",
    principal="agent:a",
    state=SessionState.OPEN,
    created_ms=0,
    ends_ms=1,
    idle_ends_ms=1,
    fences_json=msgspec.json.encode({"lines": [{"fence": "flags", "asked": "x", "got": "x"}]}),
)
PROFILE = ProfileView(
    profile_id="P1",
    principal="agent:a",
    name="work",
    colour="blue",
    persistence=True,
    private=False,
    created_ms=0,
    updated_ms=0,
)


class RecordingSupervisor:
    """The browser daemon and the record, as this daemon has them."""

    def __init__(self) -> None:
        self.registry = SessionRegistry()
        self.happened: list[tuple[Any, ...]] = []

    @asynccontextmanager
    async def connected(self) -> AsyncIterator["RecordingSupervisor"]:
        yield self

    async def sessions(self, caller: Caller) -> list[SessionView]:
        return [VIEW]

    async def close_session(self, caller: Caller, session_id: str) -> CloseReport:
        self.happened.append(("closed", caller.operator, session_id))
        return CloseReport(saved=True)

    async def profiles(self, caller: Caller) -> list[ProfileView]:
        return [PROFILE]

    async def reset_profile(self, caller: Caller, profile_id: str) -> ProfileView:
        self.happened.append(("reset", caller.principal, profile_id))
        return PROFILE

    async def catch_up(self, owned: OwnedSession, client: Any) -> None:
        self.happened.append(("caught up", owned.session_id))

    async def record_end(self, owned: OwnedSession, *, reason: str, saved: bool) -> None:
        self.happened.append(("ended", reason, saved))

    async def record(self, session: object, kind: str, *, actor: str, **facts: Any) -> None:
        self.happened.append((kind, actor, facts["owner"]))

    def enter(self) -> None:
        principal = Principal.parse("agent:a")
        reach = Reach(hosts=("shop.test",))
        self.registry.enter(OwnedSession(VIEW, principal=principal, run="R", channel="api", reach=reach, approved=True))


@pytest.fixture
def supervisor() -> RecordingSupervisor:
    return RecordingSupervisor()


@pytest.fixture
def service(supervisor: RecordingSupervisor) -> BrowserOperatorService:
    return BrowserOperatorService(supervisor)  # type: ignore[arg-type]


async def test_a_session_is_shown_with_its_run_and_its_fences_and_without_what_they_are_made_of(
    service: BrowserOperatorService, supervisor: RecordingSupervisor
) -> None:
    (foreign,) = await service.sessions(BOSS)
    assert (foreign["run_id"], foreign["fences"]) == ("", []) and "fences_json" not in foreign
    supervisor.enter()
    (own,) = await service.sessions(BOSS)
    assert (own["run_id"], own["channel"], own["approved"]) == ("R", "api", True)
    assert [line["layer"] for line in own["fences"]] == ["browser flags", "browser hosts"]


async def test_closing_a_call_s_session_is_on_record_after_all_that_happened_in_it(
    service: BrowserOperatorService, supervisor: RecordingSupervisor
) -> None:
    supervisor.enter()
    detail = await service.close("S1", BOSS)
    assert detail["closed"] and detail["saved"]
    assert supervisor.happened == [("caught up", "S1"), ("closed", BOSS, "S1"), ("ended", "user:boss closed it", True)]


async def test_a_profile_is_emptied_for_its_owner_and_recorded_for_the_operator(
    service: BrowserOperatorService, supervisor: RecordingSupervisor
) -> None:
    assert (await service.reset_profile("P1", BOSS))["name"] == "work"
    assert supervisor.happened == [("reset", "agent:a", "P1"), ("browser.profile_reset", BOSS, "agent:a")]
    with pytest.raises(NoSuchProfile):
        await service.reset_profile("P2", BOSS)
    assert len(supervisor.happened) == 2
