"""Has a person approve calls: asks, waits for the answer, and lets requests expire.

A decision of this process wakes its waiters at once. One of another process is found in the table, which is the truth.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import Unavailable
from palyra.ids import ApprovalId
from palyra.pipeline import reserve
from palyra.pipeline.authorize import AuthorizedCall
from palyra.pipeline.domain.approval import Approval, ApprovalBinding, ApprovalState, CallPlace, InspectedCall
from palyra.pipeline.domain.call import ExecutionPlan, ToolCallConfig
from palyra.pipeline.domain.shares import CallShares
from palyra.pipeline.domain.spec import ToolSpec
from palyra.pipeline.reserve import PendingCall, StartedCall
from palyra.pipeline.store import approval_tables
from palyra.pipeline.store.approval_tables import expire_due, read_approval, read_next_expiry_ms
from palyra.policy.decision import PolicyPort
from palyra.store.port import Store

log = logging.getLogger("palyra.gateway")

# How soon a decision of another process is noticed.
LOOK_AGAIN_SECONDS = 1.0
# How late a request of another process on the same state directory may expire: nothing notifies this process of it.
OTHERS_LOOK_SECONDS = 30.0
# The time between two attempts after the disk failed.
RETRY_SECONDS = 1.0


# Reads the files of a call that needs an approval. Blocking.
Inspect = Callable[[ToolSpec, ExecutionPlan], InspectedCall]


def inspect_nothing(_spec: ToolSpec, _plan: ExecutionPlan) -> InspectedCall:
    return InspectedCall()


# Calls whose files are read at the same time. More only fight over the disk.
MAX_INSPECTIONS = 4


class Waiter:
    """A caller that waits for a person until a time of the monotonic clock."""

    def __init__(self, until: float, principal: str = "", *, operators_own: bool = False) -> None:
        self.until = until
        self.principal = principal
        self.operators_own = operators_own
        self.event = asyncio.Event()
        self.cancelled = False
        self.outdated = False
        # The request is in the journal: the call was judged before, by other policies, and keeps its place.
        self.already_recorded = False

    def cancel(self) -> None:
        """End the wait: the caller takes the present answer."""
        self.cancelled = True
        self.event.set()

    def judge_again(self) -> None:
        """End the wait for this answer: the policies now in force may judge the call otherwise."""
        self.outdated = True
        self.event.set()


class ApprovalWaiters:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._events: dict[str, set[asyncio.Event]] = {}
        self.closed = False
        # Set at each request and each decision in this process: another approval may be the next to expire.
        self.changed = asyncio.Event()

    def notify(self, approval_id: str) -> None:
        """Wake the waiters after a request, a decision or an expiry."""
        self.changed.set()
        for event in self._events.get(approval_id, ()):
            event.set()

    def close(self) -> None:
        """End all waits with the present answers."""
        self.closed = True
        for events in self._events.values():
            for event in events:
                event.set()

    async def wait(self, approval_id: str, seconds: float, waiter: Waiter | None = None) -> Approval:
        """Return the approval once it is decided, or its present state when the time is up or the wait is ended."""
        deadline = asyncio.get_running_loop().time() + seconds
        waiter = waiter or Waiter(deadline)
        events = self._events.setdefault(approval_id, set())
        events.add(waiter.event)
        try:
            return await self._wait(approval_id, waiter, deadline)
        finally:
            events.discard(waiter.event)
            if not events:
                del self._events[approval_id]

    async def _wait(self, approval_id: str, waiter: Waiter, deadline: float) -> Approval:
        while True:
            waiter.event.clear()
            over = self.closed or waiter.cancelled or waiter.outdated
            approval = await asyncio.to_thread(read_approval, self._store, approval_id)
            left = deadline - asyncio.get_running_loop().time()
            if approval.state is not ApprovalState.PENDING or left <= 0 or over:
                return approval
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_AGAIN_SECONDS)):
                    await waiter.event.wait()


class ApprovalService:
    """Starts a call that a person has to approve: at once if that was done, else when it is, if its caller waits."""

    def __init__(
        self,
        config: ToolCallConfig,
        policy: PolicyPort,
        store: Store,
        clock: Clock,
        waiters: ApprovalWaiters,
        inspect: Inspect = inspect_nothing,
    ) -> None:
        self._ttl_ms = config.approval_ttl_ms
        self._shares = CallShares.of(config)
        self._denied_again_ms = config.denied_again_ms
        self._policy = policy
        self._store = store
        self._clock = clock
        self._waiters = waiters
        self._inspect = inspect
        # Threads of their own: calls that name large files hold up no other work.
        self._threads = ThreadPoolExecutor(MAX_INSPECTIONS, thread_name_prefix="palyra-inspection")
        # The callers that wait, by the call's id. One whose call is judged again keeps its place.
        self.waiting: dict[str, Waiter] = {}

    async def start_or_wait(self, authorized: AuthorizedCall, waiter: Waiter) -> StartedCall | PendingCall | None:
        """Start the call under an approval that covers it, or wait for one.

        Return None if the policies changed while it waited: no approval of the request counts under other policies.
        """
        call_id = authorized.record.call_id
        while True:
            # Build it each time: a file that changed while a person decided makes it another call.
            request = await self._build_request(authorized)
            begun = await self._begin(authorized, request)
            if isinstance(begun, StartedCall) or begun.denied_before:
                return begun
            self._waiters.notify(begun.approval.id)
            left = waiter.until - self._clock.monotonic()
            has_place = call_id in self.waiting or self._has_place(waiter)
            if left <= 0 or self._waiters.closed or not has_place:
                return begun
            self.waiting[call_id] = waiter
            waiter.outdated = self._policy.bundle_digest != request.binding.bundle_digest
            waiter.already_recorded = False
            try:
                decided = await self._waiters.wait(begun.approval.id, left, waiter)
                stays = not self._waiters.closed and not waiter.cancelled
                waiter.already_recorded = stays and await self._withdraw_outdated(waiter, authorized, decided)
            finally:
                if not waiter.already_recorded:
                    del self.waiting[call_id]
            if waiter.already_recorded:
                return None
            if decided.state is not ApprovalState.APPROVED:
                return msgspec.structs.replace(begun, approval=decided)

    def _has_place(self, waiter: Waiter) -> bool:
        """Return whether one more caller of this principal may wait, by the same shares as calls in progress."""
        holders = [each.principal for each in self.waiting.values()]
        return self._shares.refuse(holders, waiter.principal, operators_own=waiter.operators_own) is None

    async def _begin(self, authorized: AuthorizedCall, request: Approval) -> StartedCall | PendingCall:
        again = self._denied_again_ms
        return await self._store.transact(
            lambda tx: reserve.start_approved_or_wait(tx, authorized, request, denied_again_ms=again)
        )

    async def _build_request(self, authorized: AuthorizedCall) -> Approval:
        plan, spec = authorized.plan, authorized.entry.spec
        assert plan is not None
        loop = asyncio.get_running_loop()
        inspected = await loop.run_in_executor(self._threads, self._inspect, spec, plan)
        obligations = msgspec.structs.asdict(plan.obligations)
        now = self._clock.now_ms()
        return Approval(
            id=str(ApprovalId.new()),
            state=ApprovalState.PENDING,
            binding=ApprovalBinding(
                principal=authorized.record.principal,
                tool=authorized.record.tool,
                argument_digest=authorized.arguments.digest,
                bundle_digest=authorized.decision["bundle_digest"],
                workspace=authorized.context.workspace,
                skill=spec.digest,
                place=(CallPlace.WORKER if plan.on_worker else CallPlace.HERE).value,
                tier=plan.tier.value,
                obligations={name: value for name, value in obligations.items() if value is not None},
                places={path: place for path, place in plan.places.items() if place != path},
                files=inspected.files,
            ),
            session=authorized.record.session,
            arguments=authorized.arguments.value,
            touches=msgspec.to_builtins(authorized.touches),
            policies=tuple(authorized.decision["policies"]),
            created_ms=now,
            expires_ms=now + self._ttl_ms,
            sends=inspected.sends,
        )

    async def _withdraw_outdated(self, waiter: Waiter, authorized: AuthorizedCall, approval: Approval) -> bool:
        """Return whether the policies changed during the wait. Then withdraw the request."""
        if self._policy.bundle_digest == approval.binding.bundle_digest:
            return waiter.outdated
        actor = authorized.record.actor
        await self._store.transact(lambda tx: approval_tables.withdraw_outdated(tx, approval.id, actor=actor))
        self._waiters.notify(approval.id)
        return True


async def expire_approvals(store: Store, clock: Clock, waiters: ApprovalWaiters, *, actor: str) -> None:
    """Expire requests when they are due, and wake their waiters. Ends only by being cancelled."""
    while True:
        # Before the table is read: a request that comes after it sets the event again.
        waiters.changed.clear()
        try:
            due_ms = await asyncio.to_thread(read_next_expiry_ms, store)
            if due_ms is None or due_ms > clock.now_ms():
                await _wait_until_due(waiters.changed, due_ms, clock)
                continue
            expired = await store.transact(lambda tx: expire_due(tx, actor=actor))
        except Unavailable as problem:
            # The disk is full, or another process holds the database: no fault of this program.
            log.warning("approvals could not be expired and will be tried again: %s", problem.message)
            await asyncio.sleep(RETRY_SECONDS)
            continue
        except Exception:
            log.exception("approvals could not be expired; will try again")
            await asyncio.sleep(RETRY_SECONDS)
            continue
        for approval in expired:
            waiters.notify(approval.id)


async def _wait_until_due(changed: asyncio.Event, due_ms: int | None, clock: Clock) -> None:
    seconds = OTHERS_LOOK_SECONDS
    if due_ms is not None:
        seconds = min(seconds, (due_ms - clock.now_ms()) / MS_PER_SECOND)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await changed.wait()
