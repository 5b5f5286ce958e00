"""Drives every call along the one path: intake, authorize, approve, reserve, execute, attest, settle.

Nothing runs before the entry that says it starts is on the disk, and nothing is reported before the entry that says how
it ended is.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from palyra.clock import Clock
from palyra.errors import Denied, InvalidInput, LimitExceeded, Unavailable
from palyra.pipeline import reserve
from palyra.pipeline.approve import ApprovalWait, ApprovalWaiters
from palyra.pipeline.attest import AttestedCall, attest
from palyra.pipeline.authorize import AuthorizedCall, Authorizer
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.approval import Approval
from palyra.pipeline.domain.call import (
    CallObserver,
    CallRecord,
    CallState,
    ExecutionPlan,
    Stopping,
    ToolCallConfig,
    TooManyCalls,
)
from palyra.pipeline.domain.spec import SKILL_TOOLS
from palyra.pipeline.execute import ExecutionResult, Executor, RunningCalls, apply_grants, execute
from palyra.pipeline.intake import CallRequest, accept_call, open_record
from palyra.pipeline.reserve import StartedCall
from palyra.pipeline.settle import CallSettlement
from palyra.policy.decision import Outcome as Verdict
from palyra.policy.decision import PolicyPort
from palyra.signing.dsse import Signer
from palyra.store.port import Store

# A call for somebody who may leave in the middle of it: it ends with them, and its end is on record before they go.

# How long a call that is being cancelled may take to be where cancelling reaches it: one transaction.
LOOK_AGAIN_SECONDS = 0.05


class Pipeline(Protocol):
    async def call(self, request: CallRequest) -> CallRecord: ...

    async def cancel(self, call_id: str) -> None:
        """Stops a call that runs, or the waiting for a person."""


async def cancel_with_caller(pipeline: Pipeline, request: CallRequest) -> CallRecord:
    """``request`` has its id already. Cancelled, this cancels the call."""
    assert request.call_id is not None
    # A task of its own: cut off in the middle of its start, a call would stay on record as running.
    calling = asyncio.create_task(pipeline.call(request), name=f"attended call {request.call_id}")
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        await _whatever_comes(_end(pipeline, calling, request.call_id))
        raise


async def _whatever_comes(work: Coroutine[Any, Any, None]) -> None:
    """Waits for it also where this task is cancelled again, once or, as in a scope of anyio's, all the time."""
    import anyio

    ending = asyncio.create_task(work)
    with anyio.CancelScope(shield=True):
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)


async def _end(pipeline: Pipeline, calling: "asyncio.Task[CallRecord]", call_id: str) -> None:
    while not calling.done():
        await pipeline.cancel(call_id)
        await asyncio.wait([calling], timeout=LOOK_AGAIN_SECONDS)
    if not calling.cancelled():
        # Looked at, so that nobody complains that it was not.
        calling.exception()


class Broker:
    def __init__(
        self,
        *,
        config: ToolCallConfig,
        catalog: Catalog,
        executors: Mapping[str, Executor],
        policy: PolicyPort,
        store: Store,
        signer: Signer,
        clock: Clock,
        instance: str,
        observer: CallObserver,
        redact: Callable[[Any], Any] = lambda value: value,
        refresh: Callable[[], Awaitable[None]] | None = None,
        wait_until_ready: Callable[[ExecutionPlan], Awaitable[None] | None] = lambda plan: None,
    ) -> None:
        """Build the pipeline over its services.

        ``redact`` removes known secrets from what a call returns. ``refresh`` brings the catalog up to date with the
        skills in use. ``wait_until_ready`` blocks until the executor can take the plan. It does not count against the
        call's deadline.
        """
        self.config = config
        self.catalog = catalog
        self._executors = executors
        self._asking = Authorizer(config, policy, instance)
        self._store = store
        self._signer = signer
        self._clock = clock
        self._observer = observer
        self._redact = redact
        self._refresh = refresh
        self._wait_until_ready = wait_until_ready
        self._settlement = CallSettlement(store, clock)
        self._running = RunningCalls()
        self.approval_waiters = ApprovalWaiters(store)
        self._approval_wait = ApprovalWait(config, policy=policy, store=store, clock=clock, room=self.approval_waiters)
        # Calls whose start is being written, and those among them whose caller waits for a person.
        self._beginning: set[str] = set()
        self._waiting = self._approval_wait.waiting
        self._accepting = True

    async def call(self, request: CallRequest) -> CallRecord:
        """Returns the finished record of the call. Denials and failures are records too, with their error in them."""
        record = open_record(request, self._clock.now_ms())
        with self._observer.watching(record) as watch:
            if not self._accepting:
                raise Stopping("the daemon is stopping and takes no more calls")
            until = self._clock.monotonic() + request.wait_ms / 1000
            try:
                ended = await self._drive(record, request, until)
                while ended is None:
                    ended = await self._drive(record, request, until, known=True)
            finally:
                self._waiting.pop(record.call_id, None)
            watch.call_ended(ended)
        return ended

    async def _drive(
        self, record: CallRecord, request: CallRequest, until: float, *, known: bool = False
    ) -> CallRecord | None:
        """Takes a call from intake to its end.

        Returns None when it waited for a person and other policies came meanwhile: it has to be judged by those. It is
        ``known`` then: the request is on record, and the call keeps its place."""
        if request.tool.startswith(SKILL_TOOLS):
            await self.refresh_catalog()
        try:
            accepted = await accept_call(self.catalog, request)
            record = msgspec.structs.replace(record, argument_digest=accepted.arguments.digest)
            asked = self._asking.authorize(record, request, accepted)
        except (InvalidInput, LimitExceeded, Denied, Unavailable) as error:
            return await self._settlement.refuse(record, error)
        if asked.plan is None:
            return await self._settlement.deny(asked)
        if (wait_until_ready := self._wait_until_ready(asked.plan)) is not None:
            await wait_until_ready
        if self._busy() >= self.config.max_concurrent_calls and not known:
            return await self._settlement.refuse(record, TooManyCalls(f"{self._busy()} calls are running"))
        question = self._approve(asked)
        try:
            started = await self._reserve(asked, question, until, known=known)
        except (LimitExceeded, InvalidInput) as error:
            return await self._settlement.refuse(record, error, asked)
        if not isinstance(started, StartedCall):
            return started
        self._waiting.pop(record.call_id, None)
        return await self._running.run(record.call_id, self._run(asked, asked.plan, started))

    async def _run(self, asked: AuthorizedCall, plan: ExecutionPlan, started: StartedCall) -> CallRecord:
        """Takes a call whose start is on disk to its end."""
        ended = await self._execute(asked, plan, started)
        attested = await self._attest(asked, started, ended)
        return await self._settlement.settle(started, attested)

    def _approve(self, asked: AuthorizedCall) -> Approval | None:
        """Returns the question for a person, where policy wants one."""
        return None if asked.decision["outcome"] == Verdict.ALLOW.value else self._approval_wait.question(asked)

    async def _reserve(
        self, asked: AuthorizedCall, question: Approval | None, until: float, *, known: bool
    ) -> StartedCall | CallRecord | None:
        """Starts the call, or waits for the person. An approval is used up in the transaction that starts the call."""
        self._beginning.add(asked.record.call_id)
        try:
            if question is None:
                return await self._store.transact(lambda tx: reserve.start_call(tx, asked, known=known))
            return await self._approval_wait.start_or_wait(asked, question, until)
        finally:
            self._beginning.discard(asked.record.call_id)

    async def _execute(self, asked: AuthorizedCall, plan: ExecutionPlan, started: StartedCall) -> ExecutionResult:
        approval = {"approved": started.approved, "approval_id": started.record.approval_id or ""}
        granted = apply_grants(plan, started.granted, **approval)
        executor = self._executors[asked.executor]
        return await execute(executor, asked.entry, granted, redact=self._redact, clock=self._clock)

    async def _attest(self, asked: AuthorizedCall, started: StartedCall, ended: ExecutionResult) -> AttestedCall:
        return await attest(started.record, asked.executor, ended, self._signer)

    def _busy(self) -> int:
        return len(self._running) + len(self._beginning - self._waiting.keys())

    async def refresh_catalog(self) -> None:
        if self._refresh is not None:
            await self._refresh()

    async def cancel(self, call_id: str) -> None:
        """Stops a running call and returns when its end is on record. Ends the waiting for a person. Leaves a call
        that does not run here as it is."""
        if call_id in self._waiting:
            self._waiting[call_id].leave()
        await self._running.cancel(call_id)

    def policy_changed(self) -> None:
        """Has waiting calls judged by the policies now in force. They may be allowed or denied at once."""
        for waiter in self._waiting.values():
            waiter.judge_again()

    def is_unfinished(self, record: CallRecord) -> bool:
        """Whether more is to come of this call: it runs, or its caller still waits here for a person."""
        return record.state is CallState.RUNNING or record.call_id in self._waiting

    def running(self) -> int:
        return len(self._running)

    async def stop(self, grace_seconds: float) -> None:
        """Takes no more calls, lets the running ones finish for a while, then cancels them."""
        self._accepting = False
        self.approval_waiters.close()
        await self._running.stop(grace_seconds)
