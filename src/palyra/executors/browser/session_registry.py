"""The browser sessions that calls of this daemon opened: owner, run and reach of each."""

import asyncio
from collections.abc import Iterator
from typing import Any

from palyra.browser.domain.session_api import Caller, NoSuchSession, SessionView
from palyra.executors.browser.arguments import Reach
from palyra.ids import Principal
from palyra.policy.request import Entity, EntityRef


class OwnedSession:
    """``approved``: a person who saw its hosts approved that it is opened."""

    def __init__(
        self, view: SessionView, *, principal: Principal, run: str, channel: str, reach: Reach, approved: bool
    ) -> None:
        self.view = view
        self.principal = principal
        self.run = run
        self.channel = channel
        self.reach = reach
        self.approved = approved
        # The number of the newest of its events that is on record.
        self.recorded = 0
        # Calls and the watching task write its entries one after the other.
        self.recording = asyncio.Lock()

    @property
    def session_id(self) -> str:
        return self.view.session_id

    @property
    def entity(self) -> Entity:
        return session_entity(self.session_id, self.principal, self.reach)

    def caller(self, call_id: str = "") -> Caller:
        return Caller(principal=str(self.principal), run_id=self.run, call_id=call_id)

    def to_view(self) -> dict[str, Any]:
        return {"run_id": self.run, "channel": self.channel, "approved": self.approved, "hosts": self.reach.words()}


def session_entity(session_id: str, owner: Principal, reach: Reach) -> Entity:
    return Entity(
        uid=EntityRef("BrowserSession", session_id), attrs={"owner": str(owner), "hosts": sorted(reach.words())}
    )


class SessionRegistry:
    def __init__(self) -> None:
        self._sessions: dict[str, OwnedSession] = {}

    def __iter__(self) -> Iterator[OwnedSession]:
        return iter(tuple(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def enter(self, session: OwnedSession) -> None:
        self._sessions[session.session_id] = session

    def leave(self, session_id: str) -> OwnedSession | None:
        """Remove a session and return it. Only the first caller gets it."""
        return self._sessions.pop(session_id, None)

    def find(self, session_id: str) -> OwnedSession | None:
        return self._sessions.get(session_id)

    def of(self, principal: Principal | str, run: str, session_id: str) -> OwnedSession:
        found = self._sessions.get(session_id)
        if found is None or str(found.principal) != str(principal) or found.run != run:
            raise NoSuchSession(
                f"there is no session {session_id[:64]}",
                hint="open one with browser.open; a session can be used in the run that opened it, until it ends",
            )
        return found

    def in_run(self, run: str) -> int:
        return sum(session.run == run for session in self._sessions.values())
