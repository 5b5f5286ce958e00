"""Requests that no page of ours sent: counted, and on record now and then, so that nobody fills the journal by them."""

from palyra.api.service import ApiStore
from palyra.clock import Clock
from palyra.console.errors import CrossOrigin, CsrfMissing
from palyra.console.limits import FORGERIES_RECORDED_EVERY_SECONDS
from palyra.errors import PalyraError
from palyra.journal.event import NewEvent

ACTOR = "palyrad"
FORGED: tuple[type[PalyraError], ...] = (CrossOrigin, CsrfMissing)
# Of an address that a stranger wrote, as much as tells which page was meant.
MAX_PATH_CHARS = 128


class Forgeries:
    """One entry a minute for each reason, with how many there were since the one before it."""

    def __init__(self, store: ApiStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counted: dict[str, int] = {}
        self._recorded: dict[str, float] = {}

    async def note(self, code: str, method: str, path: str) -> None:
        self._counted[code] = self._counted.get(code, 0) + 1
        now = self._clock.monotonic()
        if now - self._recorded.get(code, float("-inf")) < FORGERIES_RECORDED_EVERY_SECONDS:
            return
        self._recorded[code] = now
        payload = {"code": code, "method": method, "path": path[:MAX_PATH_CHARS], "count": self._counted.pop(code)}
        event = NewEvent(kind="console.request_refused", actor=ACTOR, payload=payload)
        await self._store.transact(lambda tx: tx.append(event))
