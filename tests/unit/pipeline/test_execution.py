"""One plan, one end: whatever an executor does, there is exactly one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fakes.pondering import Pondering
from palyra.clock import SystemClock
from palyra.errors import InvalidInput
from palyra.executors.builtin import ECHO
from palyra.pipeline.catalog import CatalogEntry
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallState, ExecutionPlan, ExecutorOutcome
from palyra.pipeline.execute import ExecutionResult, apply_grants, execute

PLAN = ExecutionPlan(
    call_id="C", run_id="R", tool="echo", arguments={}, workspace="/srv/w", timeout_ms=60_000, max_output_bytes=100
)


class Answers(Pondering):
    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        return ExecutorOutcome(
            result=await self._think(plan), receipt=({"layer": "code"},), used={BudgetKind.WASM_FUEL: 3}
        )


async def ended(think: Callable[[ExecutionPlan], Awaitable[Any]], **plan: Any) -> ExecutionResult:
    granted = {BudgetKind.CALLS: 1, BudgetKind.WALL_MS: plan.pop("timeout_ms", 60_000)}
    return await execute(
        Answers(think),
        CatalogEntry(ECHO),
        apply_grants(PLAN, granted, **plan),
        redact=lambda value: value,
        clock=SystemClock(),
    )


async def test_a_result_within_its_schema_and_size_is_a_success() -> None:
    async def think(_plan: ExecutionPlan) -> Any:
        return {"text": "x"}

    end = await ended(think)
    assert end.state is CallState.SUCCEEDED and end.result == {"text": "x"} and end.receipt == [{"layer": "code"}]
    assert end.used[BudgetKind.WASM_FUEL] == 3 and end.used[BudgetKind.CALLS] == 1


@pytest.mark.parametrize(
    ("result", "code"), [({"text": 1}, "call.output_mismatch"), ({"text": "x" * 200}, "call.output_too_large")]
)
async def test_another_result_is_a_failure_and_is_not_given(result: Any, code: str) -> None:
    async def think(_plan: ExecutionPlan) -> Any:
        return result

    end = await ended(think)
    assert end.state is CallState.FAILED and end.result is None and end.error is not None and end.error["code"] == code


@pytest.mark.parametrize(("fault", "code"), [(InvalidInput("no"), None), (ZeroDivisionError(), "internal.bug")])
async def test_what_an_executor_raises_is_an_end_too(fault: Exception, code: str | None) -> None:
    async def think(plan: ExecutionPlan) -> Any:
        plan.usage.note(BudgetKind.EGRESS_BYTES, 9)
        raise fault

    end = await ended(think)
    assert end.state is CallState.FAILED and end.error is not None and end.used[BudgetKind.EGRESS_BYTES] == 9
    assert code is None or end.error["code"] == code


async def test_a_deadline_and_a_cancellation_are_ends_too() -> None:
    async def think(_plan: ExecutionPlan) -> Any:
        await asyncio.Event().wait()

    late = await ended(think, timeout_ms=10)
    assert late.state is CallState.TIMED_OUT and late.used[BudgetKind.WALL_MS] == 10
    running = asyncio.create_task(ended(think))
    await asyncio.sleep(0)
    running.cancel()
    assert (await running).state is CallState.CANCELLED


def test_a_plan_with_other_grants_has_used_nothing_of_them() -> None:
    PLAN.usage.note(BudgetKind.WASM_FUEL, 5)
    granted = {BudgetKind.CALLS: 1, BudgetKind.WALL_MS: 5}
    plan = apply_grants(PLAN, granted, approved=True)
    assert plan.timeout_ms == 5 and plan.granted == granted and plan.approved and plan.usage.noted == {}
