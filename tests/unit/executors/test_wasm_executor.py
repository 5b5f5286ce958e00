"""Skills' tools and plugin.run in a whole gateway."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from fakes.skill_harness import ACTOR, SKILL
from fakes.wasm_guests import ECHO, imported, minimal, text_at, wasm
from fakes.wasm_skills import TOOL, put_in_use, status_module
from palyra.pipeline.domain.budget import BudgetKind
from palyra.wasm.runtime import WasmRuntime

FORBID = """
@id("mine.no-notes")
forbid (principal, action == Action::"skill.execute", resource == Skill::"acme.notes");
"""
FREE: dict[str, Any] = {"tools": {"allowed": ["skill.*", "plugin.run"], "preapproved": ["skill.*", "plugin.run"]}}


async def test_a_skill_is_callable_once_it_is_approved(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        registry = harness.gateway.skills
        assert (await harness.call(TOOL, {"a": 1})).error["code"] == "tool.unknown"
        await put_in_use(harness)
        record = await harness.call(TOOL, {"a": 1})
        assert record.state.value == "succeeded", record.error
        assert record.result == {"a": 1}
        layers = {line["layer"]: line for line in record.receipt}
        assert SKILL in layers["skill"]["asked"] and "fuel" in layers["wasm"]["got"]
        used = harness.run(record.run_id).budget
        assert 0 < used[BudgetKind.WASM_FUEL].used < 1000 and used[BudgetKind.WASM_FUEL].reserved == 0
        assert TOOL in harness.gateway.catalog
        decided = [payload for kind, payload in harness.events(call=record.call_id) if kind == "call.decided"]
        assert [one["policy_request"]["action"] for one in decided] == ["tool.execute", "skill.execute"]
        await registry.disable(SKILL, actor=ACTOR)
        assert (await harness.call(TOOL, {"a": 1})).error["code"] == "tool.unknown"
        assert TOOL not in harness.gateway.catalog


async def test_compiling_takes_nothing_of_a_calls_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an approval that was cut off: an interpreter takes half a minute to compile, and a call has less."""
    real = WasmRuntime.compile

    async def slow(self: WasmRuntime, module: bytes) -> Any:
        await asyncio.sleep(1.0)
        return await real(self, module)

    monkeypatch.setattr(WasmRuntime, "compile", slow)
    async with open_harness(tmp_path) as harness:
        await put_in_use(harness)
        record = await harness.call(TOOL, {"a": 1}, timeout_ms=900)
        assert record.state.value == "succeeded", record.error
        assert not harness.gateway.skills_in_use.has_uncompiled


async def test_policy_has_the_last_word_on_a_skill(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.cedar").write_text(FORBID)
    async with open_harness(tmp_path) as harness:
        await put_in_use(harness)
        record = await harness.call(TOOL, {})
        assert record.state.value == "denied" and record.error is not None
        assert record.error["details"]["policies"] == ["mine.no-notes"]


async def test_a_high_risk_or_capable_tool_asks_a_person_and_the_yes_is_for_that_archive(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await put_in_use(harness, more='risk = "high"')
        asked = await harness.call(TOOL, {})
        assert asked.state.value == "needs_approval"
        await harness.approve(asked.approval_id)
        assert (await harness.call(TOOL, {})).state.value == "succeeded"
        again = await harness.call(TOOL, {})
        await harness.approve(again.approval_id)
        await put_in_use(harness, "1.1.0", more='risk = "high"')
        assert (await harness.call(TOOL, {})).state.value == "needs_approval"


async def test_a_guest_that_fails_leaves_its_log_and_its_costs(tmp_path: Path) -> None:
    module = status_module(
        "(i32.add (call $log (i32.const 2) (i32.const 8) (i32.const 5)) (unreachable))",
        imports=imported("log", 3),
        data=text_at(8, "hello"),
    )
    async with open_harness(tmp_path) as harness:
        await put_in_use(harness, module=module)
        record = await harness.call(TOOL, {})
        assert record.state.value == "failed" and record.error is not None and record.error["code"] == "wasm.trap"
        assert {"layer": "log", "asked": "1 lines", "got": "warning: hello"} in record.receipt
        assert harness.run(record.run_id).budget[BudgetKind.WASM_FUEL].used > 0


async def test_a_loop_ends_with_its_fuel_and_the_run_with_its_budget(tmp_path: Path) -> None:
    module = status_module("(loop $l (result i32) (br $l))")
    async with open_harness(tmp_path, {"wasm": {"fuel": 100_000}}) as harness:
        await put_in_use(harness, module=module)
        run = await harness.open_run(wasm_fuel=150_000)
        assert (await harness.call(TOOL, {}, run_id=run)).error["code"] == "wasm.fuel_exhausted"
        assert (await harness.call(TOOL, {}, run_id=run)).error["code"] == "wasm.fuel_exhausted"
        assert (await harness.call(TOOL, {}, run_id=run)).error["code"] == "budget.exhausted"


@pytest.mark.promise("P-budget-charged")
@pytest.mark.parametrize("tool", [TOOL, "plugin.run"])
async def test_a_guest_that_is_stopped_costs_all_that_it_might_have_burned(tmp_path: Path, tool: str) -> None:
    """Else a caller that stops each call right before its end has all the computing it likes."""
    fuel = 10**11
    settings = {**FREE, "wasm": {"fuel": fuel, "max_fuel": fuel, "timeout_ms": 60_000}}
    async with open_harness(tmp_path, settings) as harness, asyncio.TaskGroup() as group:
        await put_in_use(harness, module=status_module("(loop $l (result i32) (br $l))"))
        run = await harness.open_run(wasm_fuel=2 * fuel)
        arguments = {} if tool == TOOL else {"skill_id": SKILL, "tool": "add"}
        calling = group.create_task(harness.call(tool, arguments, run_id=run))
        await eventually(lambda: harness.gateway.wasm.runtime.pool._busy)
        (started,) = harness.gateway.store.events_since(0, 1_000, kind="call.started")
        await harness.gateway.broker.cancel(started.call)
        assert (await calling).state.value == "cancelled"
        account = harness.run(run).budget[BudgetKind.WASM_FUEL]
        assert (account.used, account.reserved) == (fuel, 0)


async def test_configuration_reaches_the_guest(tmp_path: Path) -> None:
    more = (
        '[operator.configuration]\nschema = { type = "object", properties = { n = { type = "integer" } } }\n'
        "defaults = { n = 3 }"
    )
    async with open_harness(tmp_path) as harness:
        await put_in_use(harness, more=more)
        assert (await harness.call(TOOL, {"_config": "mine"})).result == {"_config": {"n": 3}}
        await harness.gateway.skills.configure(SKILL, {"n": 4}, actor=ACTOR)
        assert (await harness.call(TOOL, {})).result == {"_config": {"n": 4}}


async def test_output_that_breaks_the_schema_is_refused(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await put_in_use(harness, module=minimal("(i32.const 7)"))
        assert (await harness.call(TOOL, {})).result == {"exit_code": 7}
        await put_in_use(
            harness, "1.1.0", module=wasm(ECHO.replace("(local.get 2) (local.get 3)", "(local.get 0) (local.get 1)"))
        )
        assert (await harness.call(TOOL, {})).error["code"] == "wasm.invalid_output"


async def test_switched_off_nothing_runs(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {**FREE, "wasm": {"enabled": False}}) as harness:
        await put_in_use(harness)
        assert (await harness.call(TOOL, {})).error["code"] == "tool.unknown"
        assert (await harness.call("plugin.run", {"skill_id": SKILL})).error["code"] == "wasm.disabled"
