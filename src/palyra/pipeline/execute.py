"""Runs a plan once, under its deadline, and returns how it ended. Decides and records nothing."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from palyra.clock import Clock
from palyra.errors import CallCancelled, InternalError, PalyraError
from palyra.json_schema import SchemaMismatch
from palyra.pipeline.catalog import CatalogEntry
from palyra.pipeline.domain.budget import BudgetKind, Usage
from palyra.pipeline.domain.call import (
    CallRecord,
    CallRequest,
    CallState,
    CallTimedOut,
    ExecutionPlan,
    ExecutorOutcome,
    OutputRefused,
    OutputTooLarge,
    Stopping,
)

log = logging.getLogger("palyra.broker")
R = TypeVar("R")

# How much longer than its deadline an executor that keeps it itself may take to return a partial result.
KEPT_DEADLINE_GRACE_SECONDS = 2.0
# A call that is being cancelled may still be within the transaction of its start. Cancel it again after this time.
CANCEL_AGAIN_SECONDS = 0.05
_encode = msgspec.json.Encoder().encode


class Executor(Protocol):
    """Runs plans in one kind of place. Cancelling ``execute`` must leave nothing running."""

    @property
    def name(self) -> str: ...

    @property
    def keeps_deadline(self) -> bool:
        """Return whether it ends a call at its deadline itself, with a partial result. It is still watched."""

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome: ...


class DeferredExecutors(Mapping[str, Executor]):
    """Executors by name, each built when its first call comes."""

    def __init__(self, builders: Mapping[str, Callable[[], Executor]]) -> None:
        self._builders = dict(builders)
        self._built: dict[str, Executor] = {}

    def __getitem__(self, name: str) -> Executor:
        built = self._built.get(name)
        if built is None:
            built = self._built[name] = self._builders[name]()
        return built

    def put(self, name: str, executor: Executor) -> None:
        """Use this executor in the place of the one that would be built."""
        self._builders[name] = lambda: executor
        self._built[name] = executor

    @property
    def built(self) -> list[str]:
        return list(self._built)

    def __iter__(self) -> Iterator[str]:
        return iter(self._builders)

    def __len__(self) -> int:
        return len(self._builders)


class ExecutionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a plan, with known secrets removed. ``used`` is what the run is charged."""

    state: CallState
    result: Any = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] = []
    used: dict[BudgetKind, int]
    elapsed_ms: int = 0
    # The length of the result as JSON.
    result_bytes: int = 0
    worker_attestation: dict[str, Any] | None = None


async def execute(
    executor: Executor, entry: CatalogEntry, plan: ExecutionPlan, *, redact: Callable[[Any], Any], clock: Clock
) -> ExecutionResult:
    """Run a plan and return its end. A deadline, a cancellation and a fault are ends too: nothing is raised."""
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
        # The principals of the calls from their admission on, and of those whose caller is gone and that still run.
        self._holders: dict[str, str] = {}
        self._open = True

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def require_open(self) -> None:
        if not self._open:
            raise Stopping("the daemon is stopping and takes no more calls")

    def close(self) -> None:
        self._open = False

    def holders(self, *, except_for: Collection[str]) -> list[str]:
        """Return the principal of each call in progress, without those that only wait for a person."""
        return [principal for call_id, principal in self._holders.items() if call_id not in except_for]

    @contextlib.contextmanager
    def admitted(self, call_id: str, principal: str) -> Iterator[None]:
        """Count the call from its first step on. One whose caller leaves counts until it has ended."""
        self._holders[call_id] = principal
        try:
            yield
        finally:
            if call_id not in self._tasks:
                self._holders.pop(call_id, None)

    async def run(self, call_id: str, work: Coroutine[Any, Any, R]) -> R:
        task = asyncio.create_task(work, name=f"call {call_id}")
        self._tasks[call_id] = task
        task.add_done_callback(lambda _: self._end(call_id))
        return await asyncio.shield(task)

    def _end(self, call_id: str) -> None:
        del self._tasks[call_id]
        self._holders.pop(call_id, None)

    async def cancel(self, call_id: str) -> None:
        """Stop a call, and return when its end is on record. Do nothing if it does not run."""
        task = self._tasks.get(call_id)
        if task is not None:
            # A task that is cancelled before its first step never runs, and nothing would put its end on record.
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

    async def stop(self, grace_seconds: float) -> None:
        """Let all finish for a while, then cancel them."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(list(self._tasks.values()), timeout=grace_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


async def shield_until_done(awaited: Awaitable[R]) -> R:
    """Wait for a write whatever happens. A call cannot be stopped while its start or its end is being written."""
    writing = asyncio.ensure_future(awaited)
    while True:
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            if writing.cancelled():
                raise


class Pipeline(Protocol):
    async def call(self, request: CallRequest) -> CallRecord: ...

    async def cancel(self, call_id: str) -> None: ...


async def cancel_with_caller(pipeline: Pipeline, request: CallRequest) -> CallRecord:
    """Make a call whose caller may leave. If this task is cancelled, it ends the call and waits for the record."""
    assert request.call_id is not None
    # A task of its own: a call that is cut off in the middle of its start would stay on record as running.
    calling = asyncio.create_task(pipeline.call(request), name=f"attended call {request.call_id}")
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        await _shield_from_scopes(_cancel_until_done(pipeline, calling, request.call_id))
        raise


async def _shield_from_scopes(work: Coroutine[Any, Any, None]) -> None:
    """Wait for the work even if this task is cancelled again, once or, in a scope of anyio, all the time."""
    import anyio

    ending = asyncio.create_task(work)
    with anyio.CancelScope(shield=True):
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)


async def _cancel_until_done(pipeline: Pipeline, calling: "asyncio.Task[CallRecord]", call_id: str) -> None:
    while not calling.done():
        await pipeline.cancel(call_id)
        await asyncio.wait([calling], timeout=CANCEL_AGAIN_SECONDS)
    if not calling.cancelled():
        # Retrieve the exception so asyncio does not log it.
        calling.exception()


def _state_after(error: PalyraError) -> CallState:
    """Choose the state by the error: an executor that keeps its deadline reports a timeout or a cancellation itself."""
    if isinstance(error, CallTimedOut):
        return CallState.TIMED_OUT
    return CallState.CANCELLED if isinstance(error, CallCancelled) else CallState.FAILED


def apply_grants(plan: ExecutionPlan, granted: dict[BudgetKind, int], **approval: Any) -> ExecutionPlan:
    """Limit the plan to what the run grants this call."""
    return msgspec.structs.replace(
        plan, timeout_ms=granted[BudgetKind.WALL_MS], granted=granted, usage=Usage(), **approval
    )


def _check_output(entry: CatalogEntry, plan: ExecutionPlan, result: Any) -> int:
    """Return the size of a result, or refuse one that the tool may not return."""
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
