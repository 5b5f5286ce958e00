"""The catalog follows the registry, and what was approved is what runs."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from fakes.skill_harness import ACTOR, SKILL, archive
from fakes.wasm_skills import TOOL, put_in_use, status_module
from palyra.skills.registry.records import NotRunnable


async def test_an_upgrade_runs_when_it_is_approved_and_a_rollback_restores(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        registry = harness.gateway.skills
        await put_in_use(harness, module=status_module("(i32.const 1)"))
        newer = await registry.install(
            archive("1.1.0", modules={"main.wasm": status_module("(i32.const 2)")}), actor=ACTOR
        )
        assert (await harness.call(TOOL, {})).result == {"s": "+0001"}
        await registry.approve(SKILL, "1.1.0", newer.digest, actor=ACTOR)
        assert (await harness.call(TOOL, {})).result == {"s": "+0002"}
        await registry.rollback(SKILL, actor=ACTOR)
        assert (await harness.call(TOOL, {})).result == {"s": "+0001"}


async def test_what_was_decided_on_is_what_runs(tmp_path: Path) -> None:
    """A plan made for one archive does not run another one, though it has the same name."""
    async with open_harness(tmp_path) as harness:
        old = await put_in_use(harness)
        await harness.gateway.broker.refresh_catalog()
        new = await put_in_use(harness, "1.1.0", module=status_module("(i32.const 2)"))
        skills = harness.gateway.wasm._skills
        with pytest.raises(NotRunnable):
            skills.tool(TOOL, old.digest)
        await skills.refresh()
        assert skills.tool(TOOL, new.digest).module.version == "1.1.0"
        with pytest.raises(NotRunnable):
            skills.tool(TOOL, old.digest)


async def test_the_approved_module_runs_after_the_file_was_swapped(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        version = await put_in_use(harness)
        assert (await harness.call(TOOL, {"a": 1})).result == {"a": 1}
        file = tmp_path / "state" / "skills" / "artifacts" / f"{version.digest}.skill"
        file.write_bytes(archive("1.0.0", modules={"main.wasm": status_module("(i32.const 66)")}))
        assert (await harness.call(TOOL, {"a": 1})).result == {"a": 1}
        harness.gateway.wasm._skills.forget_compiled()
        refused = await harness.call(TOOL, {"a": 1})
        assert refused.error is not None and refused.error["code"] == "tool.unknown"
        assert "skill.failed" in harness.kinds()


async def test_calls_go_on_while_versions_change(tmp_path: Path) -> None:
    """Every call runs one whole version, or is refused because what it was decided on is not in use any more."""
    async with open_harness(tmp_path) as harness:
        await put_in_use(harness, module=status_module("(i32.const 0)"))

        async def call_often() -> set[str]:
            seen = set()
            for _ in range(10):
                record = await harness.call(TOOL, {})
                seen.add(record.result["s"] if record.error is None else record.error["code"])
            return seen

        async def change_often() -> None:
            for number in range(1, 5):
                await put_in_use(harness, f"1.{number}.0", module=status_module(f"(i32.const {number})"))

        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(call_often()) for _ in range(4)]
            group.create_task(change_often())
        seen = set().union(*(task.result() for task in calls))
        assert seen <= {*(f"+000{number}" for number in range(5)), "skill.not_active"}
        assert (await harness.call(TOOL, {})).result == {"s": "+0004"}


async def test_what_is_approved_is_compiled_before_anybody_calls_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        for version, result in (("1.0.0", 1), ("1.1.0", 2)):
            module = status_module(f"(i32.const {result})")
            await put_in_use(harness, version, module=module)
            digest = hashlib.sha256(module).hexdigest()
            await eventually(lambda digest=digest: digest in harness.gateway.wasm._skills._compiled)
        assert len(harness.gateway.wasm._skills._compiled) == 1, "what is not in use any more is forgotten"
