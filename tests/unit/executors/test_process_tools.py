from pathlib import Path
from typing import Any

import msgspec
import pytest

from palyra.executors.process import executor as process_tools
from palyra.executors.process.executor import RESULT_BYTES, ProcessExecutor, compile_profile
from palyra.executors.process.tools import build_process_specs
from palyra.json_schema import SchemaCheck
from palyra.pipeline.domain.call import ExecutionPlan, UnknownTool
from palyra.pipeline.domain.spec import ToolCapability, ToolTier
from palyra.policy.decision import Obligations
from palyra.sandbox.domain.process_run import QuotaExceeded
from palyra.sandbox.domain.profile import EgressEnforcementMode, NewProtectedPolicy, SandboxProfile, SandboxTier
from palyra.sandbox.limits import MAX_OUTPUT_BYTES
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.settings import SandboxSettings

NAMES = (".git/hooks",)


def plan(workspace: str = "/work", tool: str = "process.run", **changes: Any) -> ExecutionPlan:
    given: dict[str, Any] = {
        "call_id": "call",
        "run_id": "run",
        "tool": tool,
        "arguments": {"command": "true"},
        "workspace": workspace,
        "timeout_ms": 5_000,
        "max_output_bytes": 1 << 20,
        "tier": ToolTier.C,
    }
    return ExecutionPlan(**{**given, **changes})


def test_running_programs_is_sensitive_and_looking_at_ones_own_is_not() -> None:
    specs = {str(spec.name): spec for spec in build_process_specs(SandboxSettings())}
    assert set(specs) == {"process.run", "process.start", "process.logs", "process.stop"}
    assert {name for name, spec in specs.items() if spec.metadata.sensitive} == {"process.run", "process.start"}
    for spec in specs.values():
        SchemaCheck(spec.input_schema)
        SchemaCheck(spec.output_schema)


async def test_a_tool_without_a_case_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    runner = ProcessRunner(RunnerSettings(scratch=str(tmp_path)))
    try:
        with pytest.raises(UnknownTool, match=r"process\.signal"):
            await process_tools.ProcessTools(runner).perform(
                plan(tool="process.signal"), SandboxProfile(workspace_root=str(tmp_path))
            )
    finally:
        await runner.close()


def test_capabilities_follow_the_settings() -> None:
    def of(**settings: Any) -> frozenset[ToolCapability]:
        return build_process_specs(SandboxSettings(**settings))[0].metadata.capabilities

    assert ToolCapability.NETWORK not in of() and ToolCapability.NETWORK in of(egress="none")
    assert ToolCapability.NETWORK in of(allowed_hosts=("example.com",))
    assert ToolCapability.FILESYSTEM_WRITE in of() and ToolCapability.FILESYSTEM_WRITE not in of(read_only=True)


def test_what_a_call_touches() -> None:
    touches = build_process_specs(SandboxSettings())[0].touches
    found = touches({"command": "ls", "cwd": "sub", "requested_egress_hosts": ["example.com"]})
    assert found.paths == ("sub",) and found.hosts == ("example.com",)
    assert touches({"command": "ls"}).paths == ()


def test_the_settings_become_the_profile() -> None:
    settings = SandboxSettings(
        egress="preflight",
        allowed_hosts=("example.com",),
        env={"B": "2", "A": "1"},
        tool_roots=("/opt/tools",),
        appearing_protected="fail",
        allowed_executables=("ls",),
        pids=7,
        open_files=70,
        file_bytes=700,
    )
    made = compile_profile(plan(), settings, NAMES)
    assert made.workspace_root == "/work" and made.tier is SandboxTier.C and made.protected_names == NAMES
    assert made.env == (("A", "1"), ("B", "2")) and made.tool_roots == ("/opt/tools",)
    assert made.egress is EgressEnforcementMode.PREFLIGHT and made.allowed_egress_hosts == ("example.com",)
    assert made.appearing_protected is NewProtectedPolicy.FAIL and made.allowed_executables == ("ls",)
    assert (made.limits.pids, made.limits.open_files, made.limits.file_bytes) == (7, 70, 700)
    assert made.limits.timeout_ms == 5_000 and not made.allow_interpreters
    assert compile_profile(plan(), SandboxSettings(), NAMES).allowed_executables is None


@pytest.mark.parametrize(
    ("obliged", "field", "value"),
    [
        ({"memory_bytes": 1000}, "memory_bytes", 1000),
        ({"memory_bytes": 2**50}, "memory_bytes", SandboxSettings().memory_bytes),
        ({"cpu_seconds": 1}, "cpu_seconds", 1),
        ({"cpu_seconds": 10**6}, "cpu_seconds", SandboxSettings().cpu_seconds),
    ],
)
def test_obligations_only_make_limits_stricter(obliged: dict[str, Any], field: str, value: int) -> None:
    made = compile_profile(plan(obligations=Obligations(**obliged)), SandboxSettings(), NAMES)
    assert getattr(made.limits, field) == value


def test_obligations_on_tier_network_and_workspace() -> None:
    obliged = plan(obligations=Obligations(read_only=True, egress="strict"), tier=ToolTier.B)
    made = compile_profile(obliged, SandboxSettings(egress="none"), NAMES)
    assert made.tier is SandboxTier.B and made.read_only and made.egress is EgressEnforcementMode.STRICT
    weaker = plan(obligations=Obligations(read_only=False, egress="none"))
    kept = compile_profile(weaker, SandboxSettings(read_only=True), NAMES)
    assert kept.read_only and kept.egress is EgressEnforcementMode.STRICT


@pytest.mark.parametrize("may_return", [1024, 4096, 100_000])
@pytest.mark.parametrize("byte", ["\\001", "\\377", "a", '"', "\\n"])
async def test_whatever_is_printed_fits_into_what_may_be_returned(tmp_path: Path, may_return: int, byte: str) -> None:
    executor = ProcessExecutor(
        SandboxSettings(tier="b", max_output_bytes=MAX_OUTPUT_BYTES, allow_interpreters=True), NAMES, tmp_path / "own"
    )
    (tmp_path / "workspace").mkdir()
    script = f"while :; do printf '{byte * 64}' || exit; done"
    call = plan(
        str(tmp_path / "workspace"),
        arguments={"command": "sh", "args": ["-c", script]},
        max_output_bytes=may_return,
        tier=ToolTier.B,
    )
    outcome = await executor.execute(call)
    await executor.close()
    assert isinstance(outcome.error, QuotaExceeded) and outcome.receipt
    size = len(msgspec.json.encode(outcome.result))
    assert RESULT_BYTES // 2 < size <= may_return
    SchemaCheck(build_process_specs(SandboxSettings())[0].output_schema).require(outcome.result)


async def test_an_executor_that_never_ran_anything_closes(tmp_path: Path) -> None:
    executor = ProcessExecutor(SandboxSettings(), NAMES, tmp_path / "own")
    await executor.close()
    assert executor.keeps_deadline and not (tmp_path / "own").exists()


def test_watched_output_need_not_fit_into_the_result() -> None:
    settings = SandboxSettings(max_output_bytes=16 << 20)
    watched = compile_profile(plan(), settings, NAMES, watched=True).limits
    assert watched.max_output_bytes == 16 << 20
    assert watched.kept_output_bytes == compile_profile(plan(), settings, NAMES).limits.max_output_bytes
    obliged = plan(obligations=Obligations(max_output_bytes=5000))
    assert compile_profile(obliged, settings, NAMES, watched=True).limits.max_output_bytes == 5000


@pytest.mark.parametrize("one_command", [True, False])
async def test_a_process_of_one_command_makes_nothing_ready_for_a_next_one(
    one_command: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[RunnerSettings] = []

    def make(settings: RunnerSettings) -> ProcessRunner:
        made.append(settings)
        return ProcessRunner(settings)

    monkeypatch.setattr(process_tools, "ProcessRunner", make)
    executor = ProcessExecutor(SandboxSettings(tier="b"), NAMES, tmp_path / "own", one_command=one_command)
    (tmp_path / "workspace").mkdir()
    call = plan(str(tmp_path / "workspace"), arguments={"command": "true", "args": []}, tier=ToolTier.B)
    assert (await executor.execute(call)).error is None
    await executor.close()
    assert [settings.prewarm for settings in made] == [not one_command]
