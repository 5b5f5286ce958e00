"""A device's commands in the real sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palyra.daemon.node_agent import SandboxedCommands
from palyra.errors import PalyraError
from palyra.nodes.agent.settings import CommandPlan, ParameterPlan
from palyra.sandbox.settings import SandboxSettings


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[SandboxedCommands]:
    commands = SandboxedCommands(SandboxSettings(), (".git/hooks",), tmp_path / "node")
    yield commands
    await commands.close()


async def run(commands: SandboxedCommands, plan: CommandPlan, **given: str) -> dict[str, object]:
    plan.check("x")
    return await commands.run(plan, plan.words(given), timeout_ms=30_000, max_output_bytes=4_096)


async def test_words_are_words_and_the_folder_is_its_own(commands: SandboxedCommands, tmp_path: Path) -> None:
    plan = CommandPlan(argv=("printf", "%s|", "{a}", "fixed"), parameters={"a": ParameterPlan()})
    done = await run(commands, plan, a="$(id); echo *")
    assert done["exit_code"] == 0 and done["stdout"] == "$(id); echo *|fixed|" and done["tier"] == "c"
    await run(commands, CommandPlan(argv=("touch", "made")))
    assert (tmp_path / "node" / "workspace" / "made").exists()


async def test_what_a_request_names_stays_in_the_workspace(commands: SandboxedCommands, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the key of the house")
    plan = CommandPlan(argv=("cat", "{file}"), parameters={"file": ParameterPlan()})
    for name in (str(tmp_path / "secret"), "../../secret", "/etc/shadow"):
        try:
            done = await run(commands, plan, file=name)
        except PalyraError as error:
            assert error.code == "sandbox.workspace_scope_denied"
        else:
            assert done["exit_code"] != 0 and "house" not in str(done["stdout"])


async def test_a_shell_runs_only_where_the_owner_says_so_and_sees_nothing_of_the_device(
    commands: SandboxedCommands, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("the key of the house")
    script = f"cat {tmp_path}/secret; ls {tmp_path}; cat /proc/net/dev | wc -l; echo done"
    with pytest.raises(PalyraError) as caught:
        await run(commands, CommandPlan(argv=("sh", "-c", script)))
    assert caught.value.code == "sandbox.interpreter_denied"
    done = await run(commands, CommandPlan(argv=("sh", "-c", script), interpreter=True))
    assert "house" not in str(done) and str(done["stdout"]).endswith("done\n")


async def test_a_read_only_one_changes_nothing(commands: SandboxedCommands, tmp_path: Path) -> None:
    workspace = tmp_path / "shared"
    workspace.mkdir()
    done = await run(commands, CommandPlan(argv=("touch", "made"), workspace=str(workspace), read_only=True))
    assert done["exit_code"] != 0 and not (workspace / "made").exists()


async def test_output_and_time_are_bounded(commands: SandboxedCommands) -> None:
    with pytest.raises(PalyraError) as caught:
        await run(commands, CommandPlan(argv=("seq", "1000000")))
    assert caught.value.code == "sandbox.quota_exceeded"
    with pytest.raises(PalyraError) as caught:
        await commands.run(CommandPlan(argv=("sleep", "60")), ("sleep", "60"), timeout_ms=200, max_output_bytes=10)
    assert caught.value.code == "sandbox.timed_out"
