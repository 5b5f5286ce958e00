"""Requests that no page of ours sent: counted, and on record now and then, so that nobody fills the journal by them."""

from palyra.api.service import ApiStore
from palyra.clock import Clock
from palyra.console.errors import CrossOrigin, CsrfMissing
from palyra.console.limits import FORGERIES_RECORDED_EVERY_SECONDS
from palyra.errors import LimitExceeded, PalyraError, Unavailable
from palyra.journal.event import NewEvent

ACTOR = "palyrad"
FORGED: tuple[type[PalyraError], ...] = (CrossOrigin, CsrfMissing)
# Of an address that a stranger wrote, as much as tells which page was meant, and whose page it was.
MAX_PATH_CHARS = 128


class Forgeries:
    """One entry a minute for each reason, with how many there were since the one before it."""

    def __init__(self, store: ApiStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counted: dict[str, int] = {}
        self._recorded: dict[str, float] = {}

    async def note(self, code: str, method: str, path: str, site: str) -> None:
        """``site`` is where the request came from or was meant for, as it says itself. A journal that cannot be written
        now leaves them counted."""
        self._counted[code] = self._counted.get(code, 0) + 1
        now = self._clock.monotonic()
        if now - self._recorded.get(code, float("-inf")) < FORGERIES_RECORDED_EVERY_SECONDS:
            return
        self._recorded[code] = now
        count = self._counted.pop(code)
        told = {"method": method, "path": path[:MAX_PATH_CHARS], "site": site[:MAX_PATH_CHARS]}
        event = NewEvent(kind="console.request_refused", actor=ACTOR, payload={"code": code, **told, "count": count})
        try:
            await self._store.transact(lambda tx: tx.append(event))
        except (Unavailable, LimitExceeded):
            self._counted[code] = self._counted.get(code, 0) + count
