"""Drives each call along one path: intake, authorize, approve, reserve, execute, attest, settle.

Nothing runs before the entry about its start is on disk. Nothing is reported before the entry about its end is.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from palyra.clock import Clock
from palyra.errors import Denied, InvalidInput, LimitExceeded, Unavailable
from palyra.pipeline import reserve
from palyra.pipeline.approve import ApprovalService, ApprovalWaiters, Inspect, Waiter, inspect_nothing
from palyra.pipeline.argument_archive import Seal, keep_nothing, seal_refused
from palyra.pipeline.attest import AttestedCall, attest
from palyra.pipeline.authorize import AuthorizedCall, Authorizer
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.approval import ApprovalState
from palyra.pipeline.domain.call import (
    CallRecord,
    CallRequest,
    CallState,
    ExecutionPlan,
    ToolCallConfig,
    open_record,
)
from palyra.pipeline.domain.shares import CallShares, is_operators_own
from palyra.pipeline.domain.spec import SKILL_TOOLS
from palyra.pipeline.execute import ExecutionResult, Executor, RunningCalls, apply_grants, execute
from palyra.pipeline.intake import AcceptedCall, accept_call
from palyra.pipeline.observe import CallObserver
from palyra.pipeline.reserve import DefaultRuns, PendingCall, RefusedCalls, StartedCall
from palyra.pipeline.settle import CallSettlement
from palyra.pipeline.store.argument_tables import SealedArguments
from palyra.policy.decision import PolicyPort
from palyra.signing.dsse import Signer
from palyra.store.port import Store


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
        seal: Seal = keep_nothing,
        refresh: Callable[[], Awaitable[None]] | None = None,
        wait_until_ready: Callable[[ExecutionPlan], Awaitable[None] | None] = lambda plan: None,
        inspect: Inspect = inspect_nothing,
    ) -> None:
        """Build the pipeline over its services.

        ``redact`` removes known secrets from what a call returns. ``seal`` keeps arguments whole for the record.
        ``refresh`` brings the catalog up to date with the skills in use. ``wait_until_ready`` blocks until the executor
        can take the plan of a reviewed tool. It does not count against the call's deadline. ``inspect`` reads, on a
        thread, the files of a call that needs an approval.
        """
        self.config = config
        self.catalog = catalog
        self._executors = executors
        self._authorizer = Authorizer(config, policy, instance)
        self._store = store
        self._signer = signer
        self._clock = clock
        self._observer = observer
        self._redact = redact
        self._seal = seal
        self._refresh = refresh
        self._wait_until_ready = wait_until_ready
        self._settlement = CallSettlement(store, clock)
        self._running = RunningCalls()
        self._shares = CallShares.of(config)
        self._default_runs = DefaultRuns(clock.monotonic)
        self._refused = RefusedCalls(clock.monotonic)
        self.approval_waiters = ApprovalWaiters(store)
        self._approvals = ApprovalService(config, policy, store, clock, self.approval_waiters, inspect)

    async def call(self, request: CallRequest) -> CallRecord:
        """Return the finished record of the call. Denials and failures are records too, with their error in them."""
        own = is_operators_own(self.config.directory, request.principal, request.channel)
        if request.run_id is None and not own:
            request = msgspec.structs.replace(request, run_id=self._default_runs.run_of(str(request.principal)))
        if not own:
            self._refused.require_few(str(request.principal))
        record = open_record(request, self._clock.now_ms())
        waiter = Waiter(self._clock.monotonic() + request.wait_ms / 1000, record.principal, operators_own=own)
        with self._observer.observe(record) as note_end:
            self._running.require_open()
            holders = self._running.holders(except_for=self._approvals.waiting.keys())
            if too_many := self._shares.refuse(holders, record.principal, operators_own=own):
                ended = await self._settlement.refuse(record, too_many)
            else:
                ended = await self._drive_admitted(record, request, waiter)
            note_end(ended)
            self._refused.note(ended, operators_own=own)
        return ended

    async def _drive_admitted(self, record: CallRecord, request: CallRequest, waiter: Waiter) -> CallRecord:
        with self._running.admitted(record.call_id, record.principal):
            try:
                while (ended := await self._drive(record, request, waiter)) is None:
                    pass
                return ended
            finally:
                self._approvals.waiting.pop(record.call_id, None)

    async def _drive(self, record: CallRecord, request: CallRequest, waiter: Waiter) -> CallRecord | None:
        """Take a call through all stages. Return None if the policies changed while it waited for a person."""
        sealed: SealedArguments | None = None
        try:
            accepted = await self._intake(request)
            record = msgspec.structs.replace(record, argument_digest=accepted.arguments.digest)
            sealed = await self._seal(record, accepted.arguments)
            authorized = self._authorizer.authorize(record, request, msgspec.structs.replace(accepted, sealed=sealed))
        except (InvalidInput, LimitExceeded, Denied, Unavailable) as error:
            if not record.argument_digest:
                record, sealed = await seal_refused(self._seal, record, self.catalog, request)
            return await self._settlement.refuse(record, error, sealed=sealed)
        if (plan := authorized.plan) is None:
            return await self._settlement.deny(authorized)
        if plan.reviewed_digest and (ready := self._wait_until_ready(plan)) is not None:
            await ready
        try:
            started = await self._approve_and_reserve(authorized, waiter)
        except (LimitExceeded, InvalidInput) as error:
            return await self._settlement.refuse(record, error, authorized, sealed)
        if isinstance(started, PendingCall):
            is_pending = started.approval.state is ApprovalState.PENDING
            return started.answer() if is_pending else await self._settlement.deny_unapproved(started)
        if started is None:
            return None
        self._approvals.waiting.pop(record.call_id, None)
        return await self._running.run(record.call_id, self._run(authorized, plan, started))

    async def _intake(self, request: CallRequest) -> AcceptedCall:
        if request.tool.startswith(SKILL_TOOLS):
            await self.refresh_catalog()
        return await accept_call(self.catalog, request)

    async def _approve_and_reserve(
        self, authorized: AuthorizedCall, waiter: Waiter
    ) -> StartedCall | PendingCall | None:
        """Start the call. An approval that it needs is used up in the transaction that starts it."""
        if authorized.needs_approval:
            return await self._approvals.start_or_wait(authorized, waiter)
        known = waiter.already_recorded
        return await self._store.transact(lambda tx: reserve.start_call(tx, authorized, already_recorded=known))

    async def _run(self, authorized: AuthorizedCall, plan: ExecutionPlan, started: StartedCall) -> CallRecord:
        """Take a call whose start is on disk to its end."""
        result = await self._execute(authorized, plan, started)
        return await self._settlement.settle(started, self._attest(authorized, started, result))

    async def _execute(self, authorized: AuthorizedCall, plan: ExecutionPlan, started: StartedCall) -> ExecutionResult:
        approval_id = started.record.approval_id or ""
        granted = apply_grants(
            plan, started.granted, approved=started.approved, approval_id=approval_id, bound=started.bound
        )
        executor = self._executors[authorized.executor]
        return await execute(executor, authorized.entry, granted, redact=self._redact, clock=self._clock)

    async def _attest(self, authorized: AuthorizedCall, started: StartedCall, result: ExecutionResult) -> AttestedCall:
        return await attest(started.record, authorized.executor, result, self._signer)

    async def refresh_catalog(self) -> None:
        if self._refresh is not None:
            await self._refresh()

    async def cancel(self, call_id: str) -> None:
        """Stop a running call, and return when its end is on record. End a call's wait for a person."""
        if call_id in self._approvals.waiting:
            self._approvals.waiting[call_id].cancel()
        await self._running.cancel(call_id)

    def policy_changed(self) -> None:
        """Have waiting calls judged by the policies now in force, which may allow or deny them at once."""
        for waiter in self._approvals.waiting.values():
            waiter.judge_again()

    def is_unfinished(self, record: CallRecord) -> bool:
        """Return whether the call runs, or its caller still waits here for a person."""
        return record.state is CallState.RUNNING or record.call_id in self._approvals.waiting

    def running(self) -> int:
        return len(self._running)

    async def stop(self, grace_seconds: float) -> None:
        """Take no more calls, let the running ones finish for a while, then cancel them."""
        self._running.close()
        self.approval_waiters.close()
        await self._running.stop(grace_seconds)
