"""browser.open: a call that is cancelled while its session is made leaves none behind."""

import asyncio

import pytest

from palyra.browser.domain.session_api import Caller, SessionState, SessionView
from palyra.errors import Unavailable
from palyra.executors.browser.executor import _create_session

VIEW = SessionView(
    session_id="S1", principal="agent:a", state=SessionState.OPEN, created_ms=0, ends_ms=1, idle_ends_ms=1
)
ME = Caller(principal="agent:a")


class Client:
    """``go_on`` is when the browser daemon has made the session, or has failed to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.fails = fails
        self.closed: list[str] = []

    async def create(self) -> SessionView:
        self.begun.set()
        await self.go_on.wait()
        if self.fails:
            raise Unavailable("no browser started")
        return VIEW

    async def close_session(self, caller: Caller, session_id: str) -> None:
        assert caller is ME
        self.closed.append(session_id)


@pytest.mark.parametrize(("fails", "closed"), [(False, ["S1"]), (True, [])])
async def test_a_cancelled_call_closes_what_was_made_for_it(fails: bool, closed: list[str]) -> None:
    client = Client(fails=fails)
    opening = asyncio.create_task(_create_session(client.create(), client, ME))  # type: ignore[arg-type]
    await client.begun.wait()
    opening.cancel()
    await asyncio.sleep(0)
    assert not opening.done(), "what was asked for is waited for"
    client.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert client.closed == closed


async def test_a_session_that_was_made_is_handed_on() -> None:
    client = Client()
    client.go_on.set()
    assert await _create_session(client.create(), client, ME) is VIEW  # type: ignore[arg-type]
    assert client.closed == []
