"""Drives every call along the one path: intake, decision, approval, reservation, execution, receipt, record.

Nothing runs before the entry that says it starts is on the disk, and nothing is reported before the entry that says how
it ended is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from palyra.clock import Clock
from palyra.errors import Denied, InvalidInput, LimitExceeded, PalyraError, Unavailable
from palyra.ids import CallId, RunId
from palyra.policy.decision import Outcome as Verdict
from palyra.policy.port import PolicyPort
from palyra.signing.dsse import Signer
from palyra.tools import sqlite_calls
from palyra.tools.approval_wait import ApprovalWait
from palyra.tools.arguments import MAX_QUICK_BYTES, Arguments, accept_arguments, may_take_long
from palyra.tools.asking import Asked, Asking, CallRequest
from palyra.tools.call import (
    CallDenied,
    CallState,
    ExecutionPlan,
    Stopping,
    ToolCallConfig,
    TooManyCalls,
    UnknownRun,
)
from palyra.tools.catalog import Catalog, CatalogEntry
from palyra.tools.ending import Booked, Ended, conclude
from palyra.tools.execution import Executor, execute, to_the_end, with_grants
from palyra.tools.ports import CallObserver, Store, Transaction
from palyra.tools.record import CallRecord
from palyra.tools.spec import SKILL_TOOLS, WORKER_EXECUTOR
from palyra.tools.sqlite_calls import Started
from palyra.tools.waiting import WaitingRoom

R = TypeVar("R")


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
        freshen: Callable[[], Awaitable[None]] | None = None,
        readied: Callable[[ExecutionPlan], Awaitable[None] | None] = lambda plan: None,
    ) -> None:
        """``redact`` takes known secrets out of what a call returns: neither the agent nor a table sees them.

        ``freshen`` brings the catalog up to date with the skills in use, whoever changed them. ``readied`` is what a
        plan has to wait for that is no part of the call and not of its time; nearly always nothing."""
        self.config = config
        self.catalog = catalog
        self._executors = executors
        self._asking = Asking(config, policy, instance)
        self._store = store
        self._signer = signer
        self._clock = clock
        self._observer = observer
        self._redact = redact
        self._freshen = freshen
        self._readied = readied
        self._running: dict[str, asyncio.Task[Any]] = {}
        self.waiting_room = WaitingRoom(store)
        self._approval_wait = ApprovalWait(config, policy=policy, store=store, clock=clock, room=self.waiting_room)
        # Calls whose start is being written, and those among them whose caller waits for a person.
        self._beginning: set[str] = set()
        self._waiting = self._approval_wait.waiting
        self._accepting = True

    async def freshen_catalog(self) -> None:
        if self._freshen is not None:
            await self._freshen()

    async def call(self, request: CallRequest) -> CallRecord:
        """The finished record of the call. Denials and failures are records too, with their error in them."""
        asked = self._asked(request)
        with self._observer.watching(asked) as watch:
            record = await self._call(asked, request)
            watch.call_ended(record)
        return record

    def _asked(self, request: CallRequest) -> CallRecord:
        return CallRecord(
            call_id=str(request.call_id or CallId.new()),
            run_id=str(request.run_id or RunId.new()),
            tool=request.tool[:128],
            principal=str(request.principal),
            actor=request.actor,
            channel=request.channel,
            session=request.session,
            state=CallState.REFUSED,
            created_ms=self._clock.now_ms(),
        )

    async def _call(self, record: CallRecord, request: CallRequest) -> CallRecord:
        if not self._accepting:
            raise Stopping("the daemon is stopping and takes no more calls")
        until = self._clock.monotonic() + request.wait_ms / 1000
        answered = await self._judged(record, request, until)
        if answered is None:
            try:
                while answered is None:
                    answered = await self._judged(record, request, until, known=True)
            finally:
                self._waiting.pop(record.call_id, None)
        return answered

    async def _judged(
        self, record: CallRecord, request: CallRequest, until: float, *, known: bool = False
    ) -> CallRecord | None:
        """None when it waited for a person and other policies came meanwhile: it has to be judged by those. It is
        ``known`` then, and keeps its place: what was asked for is on record, and who looks on is not told of an end."""
        if request.tool.startswith(SKILL_TOOLS):
            await self.freshen_catalog()
        try:
            entry = self.catalog.entry(request.tool)
            arguments = await self._accepted(entry, request.arguments)
            touches = entry.spec.touches(arguments.value)
        except (InvalidInput, LimitExceeded, Denied, Unavailable) as error:
            return await self._refuse(record, error)
        record = msgspec.structs.replace(record, argument_digest=arguments.digest)
        try:
            asked, plan, denial = self._asking.decide(record, request, entry, arguments, touches)
        except (InvalidInput, LimitExceeded, Denied, Unavailable) as error:
            return await self._refuse(record, error)
        if denial is not None:
            return await self._deny(asked, denial)
        assert plan is not None
        readied = self._readied(plan)
        if readied is not None:
            await readied
        busy = len(self._running) + len(self._beginning - self._waiting.keys())
        if busy >= self.config.max_concurrent_calls and not known:
            return await self._refuse(record, TooManyCalls(f"{busy} calls are running"))
        self._beginning.add(record.call_id)
        try:
            if asked.decision["outcome"] == Verdict.ALLOW.value:
                begun: Started | CallRecord | None = await self._start(asked, known=known)
            else:
                begun = await self._approval_wait.start_or_wait(asked, touches, plan.skill, until)
        except (LimitExceeded, InvalidInput) as error:
            return await self._refuse(record, error, asked)
        finally:
            self._beginning.discard(record.call_id)
        if not isinstance(begun, Started):
            return begun
        if known:
            self._waiting.pop(record.call_id, None)
        return await self._task(plan, self._run(begun, entry, plan))

    async def _accepted(self, entry: CatalogEntry, raw: str | bytes | dict[str, Any]) -> Arguments:
        """What is large is taken in beside the loop: half a million small values take half a second."""
        if may_take_long(raw):
            return await asyncio.to_thread(accept_arguments, entry.spec, entry.input_check, raw)
        return accept_arguments(entry.spec, entry.input_check, raw)

    def _start(self, asked: Asked, *, known: bool) -> Awaitable[Started]:
        return self._store.transact(lambda tx: sqlite_calls.start(tx, asked, known=known))

    def _task(self, plan: ExecutionPlan, work: Coroutine[Any, Any, R]) -> Awaitable[R]:
        """A caller that goes away does not stop the call: only ``cancel`` does. One that waits is told by the work
        itself, a turn of the loop before the task would."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._answer(plan.call_id, work, answer), name=f"call {plan.call_id}")
        self._running[plan.call_id] = task
        task.add_done_callback(lambda _: answer.cancel())
        return answer

    async def _answer(self, call_id: str, work: Coroutine[Any, Any, R], answer: "asyncio.Future[R]") -> None:
        try:
            result = await work
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(result)
        finally:
            del self._running[call_id]

    async def _run(self, begun: Started, entry: CatalogEntry, plan: ExecutionPlan) -> CallRecord:
        """The start is on disk."""
        known = {"approved": begun.approved, "approval_id": begun.record.approval_id or ""}
        ended = await self._execute(entry, with_grants(plan, begun.granted, **known))
        return await self._finish(begun, _executor_of(entry, plan), ended)

    async def _execute(self, entry: CatalogEntry, plan: ExecutionPlan) -> Ended:
        executor = self._executors[_executor_of(entry, plan)]
        return await execute(executor, entry, plan, redact=self._redact, clock=self._clock)

    async def _concluded(self, started: CallRecord, executor: str, ended: Ended) -> tuple[CallRecord, Booked]:
        """What is large is digested beside the loop."""
        if ended.result_bytes <= MAX_QUICK_BYTES:
            return conclude(started, executor, ended, self._signer)
        return await to_the_end(asyncio.to_thread(conclude, started, executor, ended, self._signer))

    async def _finish(self, begun: Started, executor: str, ended: Ended) -> CallRecord:
        record, booked = await self._concluded(begun.record, executor, ended)
        return await to_the_end(
            self._store.submit(lambda tx: sqlite_calls.finish(tx, record, begun.granted, booked), essential=True)
        )

    async def _refuse(self, record: CallRecord, error: PalyraError, asked: Asked | None = None) -> CallRecord:
        refused = msgspec.structs.replace(
            record,
            state=CallState.REFUSED,
            error=error.as_dict(),
            ended_ms=self._clock.now_ms(),
            decision=None if asked is None else asked.decision,
        )

        def work(tx: Transaction) -> CallRecord:
            if asked is not None and not isinstance(error, UnknownRun):
                sqlite_calls.note_asked(tx, asked)
            return sqlite_calls.note_refused(tx, refused)

        return await self._store.transact(work)

    async def _deny(self, asked: Asked, error: PalyraError) -> CallRecord:
        denied = msgspec.structs.replace(
            asked.record,
            state=CallState.DENIED if isinstance(error, CallDenied) else CallState.REFUSED,
            error=error.as_dict(),
            ended_ms=self._clock.now_ms(),
        )
        try:
            return await self._store.transact(lambda tx: sqlite_calls.note_denied(tx, asked, denied))
        except InvalidInput as misuse:
            return await self._refuse(asked.record, misuse)

    async def cancel(self, call_id: str) -> None:
        """Stops a running call and returns when its end is on record. Who waits for a person waits no longer. What does
        not run here is left as it is."""
        if call_id in self._waiting:
            self._waiting[call_id].leave()
        task = self._running.get(call_id)
        if task is not None:
            # A task that is cancelled before its first step never runs, and nothing would put its end on record.
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

    def policy_changed(self) -> None:
        """Who waits for a person is judged by the policies now in force: it may be allowed, or denied, at once."""
        for waiter in self._waiting.values():
            waiter.judge_again()

    def goes_on(self, record: CallRecord) -> bool:
        """Whether more is to come of this call: it runs, or its caller still waits here for a person."""
        return record.state is CallState.RUNNING or record.call_id in self._waiting

    def running(self) -> int:
        return len(self._running)

    async def stop(self, grace_seconds: float) -> None:
        """Takes no more calls, lets the running ones finish for a while, then cancels them."""
        self._accepting = False
        self.waiting_room.close()
        tasks = list(self._running.values())
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


def _executor_of(entry: CatalogEntry, plan: ExecutionPlan) -> str:
    return WORKER_EXECUTOR if plan.on_worker else entry.spec.executor
