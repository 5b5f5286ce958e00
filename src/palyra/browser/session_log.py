"""What happened in and to a session, in order, for its owner and for those who watch. Kept in memory and bounded."""

from collections import deque
from collections.abc import Callable
from typing import Final

from palyra.browser.session_view import Caller, SessionEvent

# An action log of a whole session at its default ceiling, with what happened meanwhile.
MAX_EVENTS: Final = 1_024
MAX_TEXT_CHARS: Final = 512
# A page that is refused for ever says so this often; the rest is counted by the guard.
MAX_REFUSALS: Final = 256

OPENED: Final = "browser.session_opened"
CLOSED: Final = "browser.session_closed"
FAILED: Final = "browser.session_failed"
ACTED: Final = "browser.acted"
OBSERVED: Final = "browser.observed"
REFUSED: Final = "browser.egress_refused"
DOWNLOADED: Final = "browser.downloaded"
DOWNLOAD_RELEASED: Final = "browser.download_released"
DOWNLOAD_DELETED: Final = "browser.download_deleted"
TAKEN_OVER: Final = "browser.taken_over"
HANDED_BACK: Final = "browser.handed_back"
OPERATED: Final = "browser.operated"
LOOKED_AT: Final = "browser.looked_at"
STATE_EXPORTED: Final = "browser.state_exported"
STATE_IMPORTED: Final = "browser.state_imported"
NOT_RESTORED: Final = "browser.not_restored"


class SessionLog:
    def __init__(self, now_ms: Callable[[], int], redact: Callable[[str], str]) -> None:
        self._now_ms = now_ms
        self._redact = redact
        self._kept: deque[SessionEvent] = deque(maxlen=MAX_EVENTS)
        self._next = 1
        self._refusals = 0
        self._hearing: list[Callable[[SessionEvent], None]] = []

    def add(self, kind: str, *, text: str = "", code: str = "", tab: str = "", caller: Caller | None = None) -> None:
        if kind == REFUSED:
            self._refusals += 1
            if self._refusals > MAX_REFUSALS:
                return
        caller = caller or Caller()
        event = SessionEvent(
            number=self._next,
            at_ms=self._now_ms(),
            kind=kind,
            code=code,
            text=self._redact(text)[:MAX_TEXT_CHARS],
            tab=tab,
            actor=caller.operator or caller.principal,
            run_id=caller.run_id,
            call_id=caller.call_id,
        )
        self._next += 1
        self._kept.append(event)
        for hear in tuple(self._hearing):
            hear(event)

    def after(self, number: int) -> tuple[SessionEvent, ...]:
        return tuple(event for event in self._kept if event.number > number)

    def subscribe(self, hear: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """From the next event on, until the returned function is called."""
        self._hearing.append(hear)
        return lambda: self._hearing.remove(hear)
