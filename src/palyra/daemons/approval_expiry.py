"""Approvals end when their time is over: sleeps until the next of them is due, and is woken when one is due sooner."""

import asyncio
import contextlib
import logging

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import Unavailable
from palyra.tools.ports import Store
from palyra.tools.sqlite_approvals import expire_due, next_expiry_ms
from palyra.tools.waiting import WaitingRoom

log = logging.getLogger("palyra.gateway")

# Another process on the same state directory asks without our hearing of it: how late its approvals may expire.
OTHERS_LOOK_SECONDS = 30.0
# After a failure, which is of the disk, before the next attempt.
RETRY_SECONDS = 1.0


async def expire_approvals(store: Store, clock: Clock, room: WaitingRoom, *, actor: str) -> None:
    """Whoever waits in the room for an approval is told that it is over. Ends only by being cancelled."""
    while True:
        # Before the look at the table: a request that comes after it wakes us.
        room.changed.clear()
        try:
            due_ms = await asyncio.to_thread(next_expiry_ms, store)
            if due_ms is None or due_ms > clock.now_ms():
                await _due_or_changed(room.changed, due_ms, clock)
                continue
            expired = await store.transact(lambda tx: expire_due(tx, actor=actor))
        except Unavailable as problem:
            # The disk is full, or somebody else holds the database: no fault of this program.
            log.warning("approvals could not be expired and will be tried again: %s", problem.message)
            await asyncio.sleep(RETRY_SECONDS)
            continue
        except Exception:
            log.exception("approvals could not be expired; will try again")
            await asyncio.sleep(RETRY_SECONDS)
            continue
        for approval in expired:
            room.ring(approval.id)


async def _due_or_changed(changed: asyncio.Event, due_ms: int | None, clock: Clock) -> None:
    seconds = OTHERS_LOOK_SECONDS
    if due_ms is not None:
        seconds = min(seconds, (due_ms - clock.now_ms()) / MS_PER_SECOND)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await changed.wait()
