import asyncio

import pytest

from palyra.executors.builtin import EXECUTOR, MAX_SLEEP_SECONDS, SPECS, BuiltinExecutor
from palyra.json_schema import SchemaMismatch
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.call import ExecutionPlan, UnknownTool


def plan(tool: str, **arguments: object) -> ExecutionPlan:
    return ExecutionPlan(
        call_id="c",
        run_id="r",
        tool=tool,
        arguments=arguments,
        workspace="/nowhere",
        timeout_ms=1000,
        max_output_bytes=1000,
    )


async def test_echo_returns_its_text_and_says_that_it_touched_nothing() -> None:
    outcome = await BuiltinExecutor().execute(plan("echo", text="ünï\n\0"))
    assert outcome.result == {"text": "ünï\n\0"} and outcome.used == {}
    assert [entry["layer"] for entry in outcome.receipt] == ["code"]


async def test_a_tool_without_a_case_is_refused_and_does_not_echo() -> None:
    with pytest.raises(UnknownTool, match="shout"):
        await BuiltinExecutor().execute(plan("shout", text="hello"))


async def test_sleep_ends_at_once_when_cancelled() -> None:
    sleeping = asyncio.create_task(BuiltinExecutor().execute(plan("sleep", seconds=MAX_SLEEP_SECONDS)))
    await asyncio.sleep(0)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping


async def test_sleep_says_how_long_as_it_was_asked() -> None:
    assert (await BuiltinExecutor().execute(plan("sleep", seconds=0))).result == {"seconds": 0}


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize("seconds", [-1, MAX_SLEEP_SECONDS + 1, "1", None, True])
def test_a_sleep_beyond_its_bounds_does_not_pass_its_schema(seconds: object) -> None:
    with pytest.raises(SchemaMismatch):
        Catalog(SPECS).entry("sleep").input_check.require({"seconds": seconds})


def test_the_tools_without_effects_are_not_sensitive_and_have_one_executor() -> None:
    assert {str(spec.name) for spec in SPECS} == {"echo", "sleep"}
    assert all(spec.executor == EXECUTOR and not spec.metadata.sensitive for spec in SPECS)
