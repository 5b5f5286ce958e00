"""A tool whose computing a test can look into."""

from collections.abc import Awaitable, Callable
from typing import Any

from fakes.gateway_harness import GatewayHarness
from palyra.ids import ToolName
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome
from palyra.pipeline.domain.spec import ToolSpec

TOOL = "ponder"
_EXECUTOR = "pondering"


class Pondering:
    """Runs ``think`` for every plan and answers with what comes of it. ``plans`` are those it was given."""

    name = _EXECUTOR
    keeps_deadline = False

    def __init__(self, think: Callable[[ExecutionPlan], Awaitable[Any]]) -> None:
        self._think = think
        self.plans: list[ExecutionPlan] = []

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        self.plans.append(plan)
        return ExecutorOutcome(result={"thought": await self._think(plan)})


def give_tool(harness: GatewayHarness, think: Callable[[ExecutionPlan], Awaitable[Any]], **spec: Any) -> Pondering:
    """Puts the tool into a harness, whose settings have to allow it."""
    executor = Pondering(think)
    harness.gateway.executors.put(_EXECUTOR, executor)
    tool = ToolSpec(
        name=ToolName(TOOL),
        title="Ponder",
        description="Thinks.",
        input_schema={"type": "object"},
        output_schema={"type": "object"},
        executor=_EXECUTOR,
        **spec,
    )
    harness.gateway.catalog.replace_group("pondering", [tool])
    return executor


SETTINGS: dict[str, Any] = {"tools": {"allowed": [TOOL, "echo", "sleep"]}}
