import os
import sys
from pathlib import Path

from palyra.doctor.attacks.attempt import Attempt
from palyra.doctor.attacks.runner import attack, find_python
from palyra.doctor.attacks.verdict import Result
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome, SpawnFailed
from palyra.sandbox.domain.profile import SandboxProfile, SandboxTier
from palyra.sandbox.running_process import Sink


class Broken:
    """A sandbox in which nothing can be started."""

    closed = False

    async def run_constrained_process(
        self, profile: SandboxProfile, command: ProcessCommand, *, sink: Sink | None = None
    ) -> ProcessOutcome:
        raise SpawnFailed("no program starts here")

    async def close(self) -> None:
        self.closed = True


async def test_where_no_probe_runs_nothing_counts_as_stopped(tmp_path: Path) -> None:
    sandbox = Broken()
    reported: list[tuple[SandboxTier, str, int, int]] = []

    def progress(tier: SandboxTier, attempt: Attempt, number: int, total: int) -> None:
        reported.append((tier, attempt.id, number, total))

    report = await attack(
        (SandboxTier.C,),
        choose=lambda each: each.id.startswith("network."),
        progress=progress,
        sandbox=lambda _: sandbox,
        base=str(tmp_path),
    )
    assert {each.result for each in report.verdicts} == {Result.NOT_APPLICABLE}
    assert "sandbox.spawn_failed" in report.verdicts[0].evidence
    assert report.idle == (SandboxTier.C,)
    assert sandbox.closed
    assert os.listdir(tmp_path) == []
    assert [number for *_, number, _ in reported] == list(range(1, reported[0][3] + 1))


def test_without_a_python_of_the_system_ours_is_taken_with_its_directories() -> None:
    found = find_python("/nonexistent/python3")
    assert found.program == os.path.realpath(sys.executable)
    assert found.roots == (os.path.realpath(sys.base_prefix),)
    assert find_python(sys.executable).roots == ()
