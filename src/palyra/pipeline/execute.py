"""Runs a plan once, in its place and under its deadline, and tells how it ended. Decides and records nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from palyra.clock import Clock
from palyra.errors import CallCancelled, InternalError, PalyraError
from palyra.json_schema import SchemaMismatch
from palyra.pipeline.catalog import CatalogEntry
from palyra.pipeline.domain.budget import BudgetKind, Usage
from palyra.pipeline.domain.call import (
    CallState,
    CallTimedOut,
    ExecutionPlan,
    ExecutorOutcome,
    OutputRefused,
    OutputTooLarge,
)

log = logging.getLogger("palyra.broker")
R = TypeVar("R")

# How much longer than its deadline an executor that keeps it itself may take to bring back what there is.
KEPT_DEADLINE_GRACE_SECONDS = 2.0
_encode = msgspec.json.Encoder().encode


class Executor(Protocol):
    """Runs a plan in one kind of place. Cancelling ``execute`` must leave nothing running."""

    @property
    def name(self) -> str: ...

    @property
    def keeps_deadline(self) -> bool:
        """Whether it ends a call at its deadline itself, with what there is by then. It is still watched."""

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome: ...


class ExecutionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a plan, with known secrets taken out. ``used`` is what the run is charged."""

    state: CallState
    result: Any = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] = []
    used: dict[BudgetKind, int]
    elapsed_ms: int = 0
    # How long the result is, written as JSON.
    result_bytes: int = 0
    worker_attestation: dict[str, Any] | None = None


async def execute(
    executor: Executor, entry: CatalogEntry, plan: ExecutionPlan, *, redact: Callable[[Any], Any], clock: Clock
) -> ExecutionResult:
    """Never raises: a deadline, a cancellation and a fault are ends too."""
    state, result, result_bytes = CallState.SUCCEEDED, None, 0
    error: PalyraError | None = None
    receipt: tuple[dict[str, Any], ...] = ()
    worker_attestation: dict[str, Any] | None = None
    used: dict[BudgetKind, int] = {BudgetKind.CALLS: 1}
    since = clock.monotonic()
    allowed_seconds = plan.timeout_ms / 1000 + (KEPT_DEADLINE_GRACE_SECONDS if executor.keeps_deadline else 0)
    try:
        async with asyncio.timeout(allowed_seconds):
            outcome = await executor.execute(plan)
        receipt = outcome.receipt
        used |= outcome.used
        clean = redact(outcome.result)
        if outcome.error is None or clean is not None:
            result_bytes = _check_output(entry, plan, clean)
        result = clean
        worker_attestation = outcome.worker_attestation
        if outcome.error is not None:
            state, error = _state_after(outcome.error), outcome.error
    except TimeoutError:
        state, error = CallState.TIMED_OUT, CallTimedOut(f"{plan.tool} did not finish in {plan.timeout_ms} ms")
    except asyncio.CancelledError:
        state, error = CallState.CANCELLED, CallCancelled(f"{plan.tool} was cancelled")
    except PalyraError as failure:
        state, error = CallState.FAILED, failure
    except Exception:
        log.exception("call %s of %s broke", plan.call_id, plan.tool)
        state, error = CallState.FAILED, InternalError(f"{plan.tool} broke inside Palyra", call_id=plan.call_id)
    used |= plan.usage.take()
    elapsed = round((clock.monotonic() - since) * 1000)
    used[BudgetKind.WALL_MS] = min(elapsed, plan.timeout_ms)
    return ExecutionResult(
        state=state,
        result=result,
        error=None if error is None else redact(error.as_dict()),
        receipt=redact(list(receipt)),
        used=used,
        elapsed_ms=elapsed,
        result_bytes=result_bytes,
        worker_attestation=worker_attestation,
    )


class RunningCalls:
    """Keeps each running call in a task of its own. A caller that goes away does not stop it; only ``cancel`` does."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    async def run(self, call_id: str, work: Coroutine[Any, Any, R]) -> R:
        task = asyncio.create_task(work, name=f"call {call_id}")
        self._tasks[call_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(call_id))
        return await asyncio.shield(task)

    async def cancel(self, call_id: str) -> None:
        """Stops a call and returns when its end is on record. Does nothing where it does not run."""
        task = self._tasks.get(call_id)
        if task is not None:
            # A task that is cancelled before its first step never runs, and nothing would put its end on record.
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

    async def stop(self, grace_seconds: float) -> None:
        """Lets all finish for a while, then cancels them."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(list(self._tasks.values()), timeout=grace_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


async def shield_until_done(handed_over: Awaitable[R]) -> R:
    """What was handed over to be written, waited for whatever happens. A call is stopped while it runs: while its start
    or its end is being written, it is too late for that."""
    writing = asyncio.ensure_future(handed_over)
    if writing.done():
        return writing.result()
    while True:
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            if writing.cancelled():
                raise


def _state_after(error: PalyraError) -> CallState:
    """An executor that keeps its deadline may tell itself that it was the deadline, or the caller, that ended it."""
    if isinstance(error, CallTimedOut):
        return CallState.TIMED_OUT
    return CallState.CANCELLED if isinstance(error, CallCancelled) else CallState.FAILED


def apply_grants(plan: ExecutionPlan, granted: dict[BudgetKind, int], **known: Any) -> ExecutionPlan:
    """The plan within what the run grants this call, with nothing used of it yet."""
    return msgspec.structs.replace(
        plan, timeout_ms=granted[BudgetKind.WALL_MS], granted=granted, usage=Usage(), **known
    )


def _check_output(entry: CatalogEntry, plan: ExecutionPlan, result: Any) -> int:
    """How long it is, if it is what the tool may return."""
    size = len(_encode(result))
    if size > plan.max_output_bytes:
        raise OutputTooLarge(
            f"{plan.tool} returned {size} bytes and may return {plan.max_output_bytes}", limit=plan.max_output_bytes
        )
    try:
        entry.output_check.require(result)
    except SchemaMismatch as mismatch:
        raise OutputRefused(f"{plan.tool} broke its own output schema: {mismatch.message}") from mismatch
    return size
