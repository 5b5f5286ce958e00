"""Callers that wait for a person. A decision made here wakes them at once; one made by another process is found by
looking at the table, which is the truth."""

import asyncio
import contextlib
import logging

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import NeedsApproval, Unavailable
from palyra.ids import ApprovalId
from palyra.pipeline import reserve, settle
from palyra.pipeline.authorize import AuthorizedCall
from palyra.pipeline.domain.approval import Approval, ApprovalBinding, ApprovalState
from palyra.pipeline.domain.call import CallDenied, CallRecord, CallState, ToolCallConfig
from palyra.pipeline.reserve import PendingCall, StartedCall
from palyra.pipeline.store import approval_tables
from palyra.pipeline.store.approval_tables import expire_due, read_approval, read_next_expiry_ms
from palyra.policy.decision import PolicyPort
from palyra.store.port import Store

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


class ApprovalWaiters:
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


def build_approval_error(approval: Approval) -> ApprovalNeeded:
    return ApprovalNeeded(
        f"{approval.binding.tool} needs a person's approval",
        hint=f"approve it with: palyra approvals approve {approval.id} - then make the same call again",
        approval_id=approval.id,
        expires_ms=approval.expires_ms,
        default="deny",
        policies=list(approval.policies),
    )


# Approvals end when their time is over: sleeps until the next of them is due, and is woken when one is due sooner.

log = logging.getLogger("palyra.gateway")

# Another process on the same state directory asks without our hearing of it: how late its approvals may expire.
OTHERS_LOOK_SECONDS = 30.0
# After a failure, which is of the disk, before the next attempt.
RETRY_SECONDS = 1.0


async def expire_approvals(store: Store, clock: Clock, room: ApprovalWaiters, *, actor: str) -> None:
    """Whoever waits in the room for an approval is told that it is over. Ends only by being cancelled."""
    while True:
        # Before the look at the table: a request that comes after it wakes us.
        room.changed.clear()
        try:
            due_ms = await asyncio.to_thread(read_next_expiry_ms, store)
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


# Starts a call that a person has to approve: at once where that was done, else when it is, if its caller waits.
#
# Other policies may come meanwhile. Then nobody can say yes to what was asked for, and the call has to be judged
# again.


class ApprovalWait:
    def __init__(
        self, config: ToolCallConfig, *, policy: PolicyPort, store: Store, clock: Clock, room: ApprovalWaiters
    ) -> None:
        self._workspace = config.workspace
        self._ttl_ms = config.approval_ttl_ms
        self._max_waiting = config.max_concurrent_calls
        self._policy = policy
        self._store = store
        self._clock = clock
        self._room = room
        # Whose caller waits, by the call's id. One that is to be judged again stays, and keeps its place.
        self.waiting: dict[str, Waiter] = {}

    def question(self, asked: AuthorizedCall) -> Approval:
        """What a person is asked about this call."""
        now = self._clock.now_ms()
        return Approval(
            id=str(ApprovalId.new()),
            state=ApprovalState.PENDING,
            binding=ApprovalBinding(
                principal=asked.record.principal,
                tool=asked.record.tool,
                argument_digest=asked.arguments.digest,
                bundle_digest=asked.decision["bundle_digest"],
                workspace=self._workspace,
                skill=asked.entry.spec.digest,
            ),
            session=asked.context.session,
            arguments=asked.arguments.value,
            touches=msgspec.to_builtins(asked.touches),
            policies=tuple(asked.decision["policies"]),
            created_ms=now,
            expires_ms=now + self._ttl_ms,
        )

    async def start_or_wait(
        self, asked: AuthorizedCall, question: Approval, until: float
    ) -> StartedCall | CallRecord | None:
        """Starts the call under an approval that covers it, or waits for one.

        Returns None when other policies came while it waited: the call has to be judged by those."""
        while True:
            begun = await self._store.transact(lambda tx: reserve.start_approved_or_wait(tx, asked, question))
            if isinstance(begun, StartedCall):
                return begun
            self._room.ring(begun.approval.id)
            left = until - self._clock.monotonic()
            decided = begun.approval
            waiter = self.waiting.get(asked.record.call_id)
            if left > 0 and not self._room.closed and (waiter or len(self.waiting) < self._max_waiting):
                waiter = self.waiting[asked.record.call_id] = waiter or Waiter()
                waiter.outdated = self._policy.bundle_digest != question.binding.bundle_digest
                judge_again = False
                try:
                    decided = await self._room.wait(begun.approval.id, left, waiter)
                    stays = not self._room.closed and not waiter.gone
                    judge_again = stays and await self._outdated(waiter, asked, decided)
                finally:
                    if not judge_again:
                        del self.waiting[asked.record.call_id]
                if judge_again:
                    return None
            if decided.state is not ApprovalState.APPROVED:
                return await self._answer_undecided(begun, decided)

    async def _outdated(self, waiter: Waiter, asked: AuthorizedCall, approval: Approval) -> bool:
        """Whether other policies came while it waited. Then nobody can say yes to the request, so it goes."""
        if self._policy.bundle_digest == approval.binding.bundle_digest:
            return waiter.outdated
        actor = asked.record.actor
        await self._store.transact(lambda tx: approval_tables.withdraw_outdated(tx, approval.id, actor=actor))
        self._room.ring(approval.id)
        return True

    async def _answer_undecided(self, begun: PendingCall, approval: Approval) -> CallRecord:
        if approval.state is ApprovalState.PENDING:
            return msgspec.structs.replace(begun.record, error=build_approval_error(approval).as_dict())
        error = CallDenied(
            f"the request for approval was {approval.state.value}"
            + (f": {approval.reason}" if approval.reason else ""),
            hint="change the call, or ask again",
            approval_id=approval.id,
        )
        denied = msgspec.structs.replace(
            begun.record, state=CallState.DENIED, error=error.as_dict(), ended_ms=self._clock.now_ms()
        )
        return await self._store.transact(lambda tx: settle.record_refusal(tx, denied))
