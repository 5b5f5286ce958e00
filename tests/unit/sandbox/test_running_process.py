"""How the end of a program becomes its outcome. That it is waited for is tested in test_process_runner."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from palyra.sandbox.domain.launch_spec import Exit
from palyra.sandbox.domain.network import NetworkUsage
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome, SpawnFailed
from palyra.sandbox.domain.profile import Layer, Receipt, SandboxLimits, SandboxProfile, SandboxTier
from palyra.sandbox.running_process import lines_of_runner, outcome_of, refuse_unexecuted


def profile(tier: SandboxTier, **limits: int) -> SandboxProfile:
    return SandboxProfile(workspace_root="/work", tier=tier, limits=SandboxLimits(**limits))


def ended(
    tier: SandboxTier,
    *,
    exit_code: int | None = None,
    number: int | None = None,
    seconds: float = 0.1,
    out_of_memory: bool = False,
    killed_by: str | None = None,
    stderr: bytes = b"",
) -> ProcessOutcome:
    capture = SimpleNamespace(kept=lambda name: stderr if name == "stderr" else b"", truncated=lambda _: False)
    running: Any = SimpleNamespace(
        capture=capture,
        seconds=seconds,
        receipt=Receipt(),
        backend="bubblewrap" if tier is SandboxTier.C else "limited_process",
        out_of_memory=out_of_memory,
        killed_by=killed_by,
        egress=NetworkUsage(connections=1),
        changes=None,
    )
    return outcome_of(profile(tier, cpu_seconds=10_000), running, Exit(exit_code=exit_code, signal=number))


@pytest.mark.parametrize(
    ("tier", "how", "limit"),
    [
        (SandboxTier.B, {"exit_code": 0}, None),
        (SandboxTier.B, {"number": signal.SIGKILL}, None),
        (SandboxTier.B, {"number": signal.SIGKILL, "out_of_memory": True}, "memory_bytes"),
        (SandboxTier.C, {"exit_code": 137, "out_of_memory": True}, "memory_bytes"),
        # A child was killed for memory, and the program went on and ended by itself.
        (SandboxTier.C, {"exit_code": 0, "out_of_memory": True}, None),
        (SandboxTier.B, {"exit_code": 137, "out_of_memory": True}, None),
        (SandboxTier.B, {"number": signal.SIGXCPU, "seconds": 10_000.0}, "cpu_seconds"),
        (SandboxTier.C, {"exit_code": 152, "seconds": 10_000.0}, "cpu_seconds"),
        # It cannot have used up what it had no time for.
        (SandboxTier.C, {"exit_code": 152, "seconds": 0.1}, None),
        (SandboxTier.B, {"exit_code": 152, "seconds": 10_000.0}, None),
        (SandboxTier.C, {"exit_code": 152, "seconds": 10_000.0, "killed_by": "timeout_ms"}, "timeout_ms"),
    ],
)
def test_the_limit_that_ended_it(tier: SandboxTier, how: dict[str, Any], limit: str | None) -> None:
    assert ended(tier, **how).killed_by == limit


def test_what_bubblewrap_could_not_execute() -> None:
    command = ProcessCommand(command="./x")
    said = b"bwrap: execvp ./x: No such file or directory\n"
    with pytest.raises(SpawnFailed, match="No such file") as refused:
        refuse_unexecuted(command, ended(SandboxTier.C, exit_code=1, stderr=said))
    assert refused.value.outcome is not None
    refuse_unexecuted(command, ended(SandboxTier.C, exit_code=2, stderr=said))
    refuse_unexecuted(command, ended(SandboxTier.C, exit_code=1, stderr=b"x" + said))
    refuse_unexecuted(command, ended(SandboxTier.B, exit_code=1, stderr=said))


def test_what_the_runner_itself_holds_a_program_to() -> None:
    lines = {line.layer: line for line in lines_of_runner(SandboxLimits(timeout_ms=123, max_output_bytes=456))}
    assert lines.keys() == {Layer.OUTPUT_QUOTA, Layer.DEADLINE, Layer.TREE_KILL}
    assert "123" in lines[Layer.DEADLINE].got and "456" in lines[Layer.OUTPUT_QUOTA].got
