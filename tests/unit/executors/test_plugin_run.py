"""plugin.run in a whole gateway."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gateway_harness import open_harness
from fakes.skill_harness import SKILL
from fakes.wasm_guests import ECHO, imported, minimal, wasm
from fakes.wasm_skills import TOOL, put_in_use, status_module
from palyra.pipeline.domain.budget import BudgetKind

FREE: dict[str, Any] = {"tools": {"allowed": ["skill.*", "plugin.run"], "preapproved": ["skill.*", "plugin.run"]}}


async def test_plugin_run_runs_a_skills_module_without_its_grants(tmp_path: Path) -> None:
    module = status_module("(call $storage-count)", imports=imported("storage-count", 0))
    async with open_harness(tmp_path, FREE) as harness:
        await put_in_use(harness, module=module, capabilities='filesystem = { read_roots = ["notes"] }')
        assert (await harness.call(TOOL, {})).result == {"s": "+0001"}
        record = await harness.call("plugin.run", {"skill_id": SKILL, "tool": "add", "input": {}})
        assert record.state.value == "succeeded" and record.result["output"] == {"s": "+0000"}, record.error
        missing = await harness.call("plugin.run", {"skill_id": "acme.other"})
        assert missing.error is not None and missing.error["code"] == "skill.not_active"
        assert missing.error["message"] == "no skill in use is 'acme.other'"


@pytest.mark.parametrize("attribute", ["device", "session"])
async def test_a_forbid_about_the_device_or_session_binds_plugin_run_as_it_binds_the_skills_own_tool(
    tmp_path: Path, attribute: str
) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.cedar").write_text(
        '@id("mine.not-from-there")\nforbid (principal, action == Action::"skill.execute", resource)\n'
        f"when {{ context has {attribute} }};\n"
    )
    async with open_harness(tmp_path, FREE) as harness:
        await put_in_use(harness)
        for tool, arguments in ((TOOL, {}), ("plugin.run", {"skill_id": SKILL, "tool": "add"})):
            assert (await harness.call(tool, arguments)).error is None
            refused = await harness.call(tool, arguments, **{attribute: "d1"})
            assert refused.error is not None and refused.error["code"] == "call.denied"
            assert refused.error["details"]["policies"] == ["mine.not-from-there"]


async def test_plugin_run_takes_no_configuration_from_its_caller(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {**FREE, "wasm": {"workspace_modules": True}}) as harness:
        await put_in_use(harness, more='[operator.configuration]\nschema = { type = "object" }')
        (harness.workspace / "m.wasm").write_bytes(wasm(ECHO))
        for module in ({"skill_id": SKILL}, {"path": "m.wasm"}):
            given = {**module, "input": {"a": 1, "_config": {"endpoint": "mine"}}}
            refused = await harness.call("plugin.run", given, principal="user:operator")
            assert refused.error is not None and refused.error["code"] == "wasm.configuration_given"
            assert harness.run(refused.run_id).budget[BudgetKind.WASM_FUEL].used == 0, "nothing ran"
            # Deeper, or as a list, it is the caller's own affair; and there is no configuration beside it.
            for value in ({"a": {"_config": 1}}, ["_config"], {}):
                done = await harness.call("plugin.run", {**module, "input": value}, principal="user:operator")
                assert done.error is None and done.result["output"] == value


async def test_plugin_run_of_a_file_is_for_operators_and_off_by_default(tmp_path: Path) -> None:
    async with open_harness(tmp_path, FREE) as harness:
        (harness.workspace / "m.wasm").write_bytes(minimal("(i32.const 5)"))
        refused = await harness.call("plugin.run", {"path": "m.wasm"}, principal="user:operator")
        assert refused.error is not None and refused.error["code"] == "wasm.workspace_modules_refused"
    async with open_harness(tmp_path, {**FREE, "wasm": {"workspace_modules": True}}) as harness:
        refused = await harness.call("plugin.run", {"path": "m.wasm"})
        assert refused.error is not None and refused.error["code"] == "wasm.workspace_modules_refused"
        done = await harness.call("plugin.run", {"path": "m.wasm"}, principal="user:operator")
        assert done.result["exit_code"] == 5
        outside = await harness.call("plugin.run", {"path": "../m.wasm"}, principal="user:operator")
        assert outside.state.value in ("failed", "refused")
