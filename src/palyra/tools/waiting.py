"""Callers that wait for a person. A decision made here wakes them at once; one made by another process is found by
looking at the table, which is the truth."""

import asyncio

from palyra.errors import NeedsApproval
from palyra.tools.approval import Approval, ApprovalState
from palyra.tools.ports import Store
from palyra.tools.sqlite_approvals import read_approval

# How soon a decision made in another process is noticed.
LOOK_AGAIN_SECONDS = 1.0


class ApprovalNeeded(NeedsApproval):
    code = "call.needs_approval"


class Waiter:
    """One caller in the room."""

    def __init__(self) -> None:
        self.bell = asyncio.Event()
        self.gone = False
        self.outdated = False

    def leave(self) -> None:
        """Waits no longer, and takes the answer as it is."""
        self.gone = True
        self.bell.set()

    def judge_again(self) -> None:
        """Waits no longer for this answer: what it asked for may be judged otherwise now."""
        self.outdated = True
        self.bell.set()


class WaitingRoom:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._bells: dict[str, set[asyncio.Event]] = {}
        self.closed = False
        # Set when somebody asked or somebody decided in this process: another approval may be the next that is due.
        self.changed = asyncio.Event()

    def ring(self, approval_id: str) -> None:
        """After a request, a decision or an end of its time."""
        self.changed.set()
        for bell in self._bells.get(approval_id, ()):
            bell.set()

    def close(self) -> None:
        """Sends everybody home with the answer as it is."""
        self.closed = True
        for bells in self._bells.values():
            for bell in bells:
                bell.set()

    async def wait(self, approval_id: str, seconds: float, waiter: Waiter | None = None) -> Approval:
        """The approval once it is decided, or as it is when the time is up or the waiter waits no longer."""
        waiter = waiter or Waiter()
        bell = waiter.bell
        self._bells.setdefault(approval_id, set()).add(bell)
        try:
            return await self._wait(approval_id, waiter, asyncio.get_running_loop().time() + seconds)
        finally:
            bells = self._bells[approval_id]
            bells.discard(bell)
            if not bells:
                del self._bells[approval_id]

    async def _wait(self, approval_id: str, waiter: Waiter, deadline: float) -> Approval:
        while True:
            waiter.bell.clear()
            over = self.closed or waiter.gone or waiter.outdated
            approval = await asyncio.to_thread(read_approval, self._store, approval_id)
            left = deadline - asyncio.get_running_loop().time()
            if approval.state is not ApprovalState.PENDING or left <= 0 or over:
                return approval
            try:
                async with asyncio.timeout(min(left, LOOK_AGAIN_SECONDS)):
                    await waiter.bell.wait()
            except TimeoutError:
                continue


def asks_for(approval: Approval) -> ApprovalNeeded:
    return ApprovalNeeded(
        f"{approval.binding.tool} needs a person's approval",
        hint=f"approve it with: palyra approvals approve {approval.id} - then make the same call again",
        approval_id=approval.id,
        expires_ms=approval.expires_ms,
        default="deny",
        policies=list(approval.policies),
    )
