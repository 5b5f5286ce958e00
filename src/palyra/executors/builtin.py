"""``echo`` and ``sleep``: two tools without effects, to try the pipeline with."""

import asyncio

from palyra.ids import ToolName
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome, UnknownTool
from palyra.pipeline.domain.spec import ToolSpec, ToolTier

EXECUTOR = "builtin"
MAX_SLEEP_SECONDS = 600

ECHO = ToolSpec(
    name=ToolName("echo"),
    title="Echo",
    description="Returns the text it was given. Touches nothing.",
    executor=EXECUTOR,
    other_tiers=frozenset({ToolTier.WORKER}),
    idempotent=True,
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to return."}},
        "required": ["text"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)

SLEEP = ToolSpec(
    name=ToolName("sleep"),
    title="Sleep",
    description="Waits, then says how long. Touches nothing; stops at once when cancelled.",
    executor=EXECUTOR,
    other_tiers=frozenset({ToolTier.WORKER}),
    idempotent=True,
    input_schema={
        "type": "object",
        "properties": {
            "seconds": {"type": "number", "minimum": 0, "maximum": MAX_SLEEP_SECONDS, "description": "How long."}
        },
        "required": ["seconds"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {"seconds": {"type": "number"}},
        "required": ["seconds"],
        "additionalProperties": False,
    },
)

SPECS = (ECHO, SLEEP)


class BuiltinExecutor:
    name = EXECUTOR
    keeps_deadline = False

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        match plan.tool:
            case "echo":
                result = {"text": plan.arguments["text"]}
            case "sleep":
                await asyncio.sleep(plan.arguments["seconds"])
                result = {"seconds": plan.arguments["seconds"]}
            case tool:
                raise UnknownTool(f"the executor {EXECUTOR} does not run {tool}")
        return ExecutorOutcome(result=result, receipt=(_NO_EFFECTS,))


_NO_EFFECTS = {"layer": "code", "asked": "no effects", "got": "runs in the daemon and opens nothing"}
