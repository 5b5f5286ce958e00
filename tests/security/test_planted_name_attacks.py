"""Programs that plant protected names where looking is hard: very deep, among very many files, behind closed doors.

Whatever they do, the call that did it is told or fails, and the next call in the same workspace is still possible.
Run as a program (``test_planted_name_attacks.py DIR``) all of it is done as an ordinary user.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fakes.ordinary_user import run_as_ordinary_user
from palyra.sandbox import limits
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome
from palyra.sandbox.domain.profile import Layer, NewProtectedPolicy, ReceiptLine, SandboxProfile
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.verify import protected_changes
from palyra.sandbox.verify.protected_changes import ProtectedAppeared, ProtectedUnseen

pytestmark = pytest.mark.promise("P-files-protected")

PLANT_DEEP = """
import os, sys
depth, name = int(sys.argv[1]), sys.argv[2]
for _ in range(depth):
    os.mkdir(name)
    os.chdir(name)
os.makedirs(".git/hooks")
open(".git/hooks/post-checkout", "w").close()
"""


class Harness:
    def __init__(self, base: Path, runner: ProcessRunner, policy: NewProtectedPolicy) -> None:
        self.workspace = base / "workspace"
        self.scratch = base / "scratch"
        self.runner = runner
        self.profile = SandboxProfile(
            workspace_root=str(self.workspace),
            protected_names=(".git/hooks", ".env*"),
            appearing_protected=policy,
            allow_interpreters=True,
        )

    async def python(self, script: str, *words: str) -> ProcessOutcome:
        command = ProcessCommand(command="python3", args=("-I", "-c", script, *words))
        return await self.runner.run_constrained_process(self.profile, command)

    async def still_usable(self) -> ReceiptLine:
        """Whatever was left behind, the next call works, and can write where nothing is sealed."""
        outcome = await self.python("open('next', 'w').write('works')")
        assert outcome.exit_code == 0, outcome.stderr
        assert (self.workspace / "next").read_text() == "works"
        return named(outcome)


def named(outcome: ProcessOutcome | None) -> ReceiptLine:
    assert outcome is not None
    line = outcome.receipt.line(Layer.PROTECTED_NAMES)
    assert line is not None
    return line


async def planted_deep(harness: Harness) -> None:
    """Deeper than anybody looks, than descriptors are held, and than a path can be."""
    for depth, name in ((80, "d"), (300, "d"), (120, "n" * 200)):
        outcome = await harness.python(PLANT_DEEP, str(depth), name)
        assert outcome.exit_code == 0, outcome.stderr
        line = named(outcome)
        assert not line.held, line.got
        assert "moved aside as 0000" in line.got
        (aside,) = list(harness.scratch.iterdir())
        assert (aside / "0000" / "post-checkout").exists()
        shutil.rmtree(aside)
        await harness.still_usable()
        shutil.rmtree(harness.workspace / name)


async def kept_deep(harness: Harness) -> None:
    """What stays there has a path that no mount can have; a directory above it is read-only in the next call."""
    with pytest.raises(ProtectedAppeared) as refused:
        await harness.python(PLANT_DEEP, "120", "n" * 200)
    assert ".git/hooks appeared" in named(refused.value.outcome).got
    assert (await harness.still_usable()).held
    outcome = await harness.python("import os; os.rename('n' * 200, 'away')")
    assert outcome.exit_code == 1
    shutil.rmtree(harness.workspace / ("n" * 200))


async def planted_among_many(harness: Harness) -> None:
    """More files than are looked at: the call fails, and the next one cannot touch what was not seen."""
    script = """
import os
os.mkdir("heap")
for number in range(600):
    os.mkdir(f"heap/{number}")
os.makedirs("heap/77/.git/hooks")
open("heap/77/.git/hooks/post-checkout", "w").close()
"""
    kept = limits.MAX_SCANNED_ENTRIES, protected_changes.MAX_NEW_ENTRIES
    limits.MAX_SCANNED_ENTRIES, protected_changes.MAX_NEW_ENTRIES = 300, 300  # type: ignore[misc]
    try:
        with pytest.raises(ProtectedUnseen) as refused:
            await harness.python(script)
        line = named(refused.value.outcome)
        assert not line.held
        assert "cut short: more than" in line.got
        line = await harness.still_usable()
        assert line.held, line.got
        assert "not looked through and read-only as a whole" in line.got
        outcome = await harness.python("open('heap/77/.git/hooks/post-checkout', 'w')")
        assert outcome.exit_code == 1
        assert b"Read-only file system" in outcome.stderr
    finally:
        limits.MAX_SCANNED_ENTRIES, protected_changes.MAX_NEW_ENTRIES = kept  # type: ignore[misc]
    # With room to look, all of it is found.
    assert "1 read-only" in (await harness.still_usable()).got
    shutil.rmtree(harness.workspace / "heap")


async def planted_in_a_closed_directory(harness: Harness) -> None:
    """An ordinary user's own directory that it may not read. Root reads it anyway."""
    script = "import os; os.makedirs('closed/.git/hooks/post-checkout'); os.chmod('closed', 0)"
    try:
        if os.geteuid() == 0:
            with pytest.raises(ProtectedAppeared):
                await harness.python(script)
        else:
            with pytest.raises(ProtectedUnseen, match="cannot be read"):
                await harness.python(script)
            assert "1 not looked through" in (await harness.still_usable()).got
            outcome = await harness.python("import os; os.chmod('closed', 0o700)")
            assert b"Read-only file system" in outcome.stderr
    finally:
        (harness.workspace / "closed").chmod(0o700)
        shutil.rmtree(harness.workspace / "closed")


async def link_to_an_unspeakable_place(harness: Harness) -> None:
    """A link with a protected name to a directory whose path is longer than the kernel can tell."""
    script = """
import os
os.symlink("way/" * 30 + "end", ".env")
for _ in range(30):
    os.mkdir("n" * 200)
    os.symlink("n" * 200, "way")
    os.chdir("way")
os.mkdir("end")
"""
    with pytest.raises(ProtectedAppeared):
        await harness.python(script)
    await harness.still_usable()
    shutil.rmtree(harness.workspace / ("n" * 200))


async def written_through_a_second_name(harness: Harness) -> None:
    """A hook and a file of secrets that have other names in the workspace, as a program may have left them."""
    hooks = harness.workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("harmless")
    (harness.workspace / ".env").write_text("KEY=1")
    (harness.workspace / "deep" / "er").mkdir(parents=True)
    os.link(hooks / "pre-commit", harness.workspace / "deep" / "er" / "innocent")
    os.link(harness.workspace / ".env", harness.workspace / "copy")
    script = """
import os
for path in ("deep/er/innocent", "copy"):
    for attempt in (
        lambda: open(path, "w").write("evil"),
        lambda: os.truncate(path, 0),
        lambda: os.rename(path, "elsewhere"),
        lambda: os.link(path, "third"),
        lambda: os.unlink(path),
        lambda: os.chmod(path, 0o777),
    ):
        try:
            attempt()
        except OSError:
            continue
        print("ESCAPED", path)
print("finished")
"""
    outcome = await harness.python(script)
    assert outcome.stdout == b"finished\n"
    assert (hooks / "pre-commit").read_text() == "harmless"
    assert (harness.workspace / ".env").read_text() == "KEY=1"
    line = named(outcome)
    assert line.held
    assert "2 of them other names of protected files" in line.got


ATTACKS: dict[Callable[[Harness], Awaitable[None]], NewProtectedPolicy] = {
    planted_deep: NewProtectedPolicy.MOVE_ASIDE,
    kept_deep: NewProtectedPolicy.FAIL,
    planted_among_many: NewProtectedPolicy.KEEP,
    planted_in_a_closed_directory: NewProtectedPolicy.FAIL,
    link_to_an_unspeakable_place: NewProtectedPolicy.FAIL,
    written_through_a_second_name: NewProtectedPolicy.KEEP,
}


async def perform(attack: Callable[[Harness], Awaitable[None]], base: Path) -> None:
    for name in ("workspace", "scratch"):
        (base / name).mkdir()
    runner = ProcessRunner(RunnerSettings(scratch=str(base / "scratch")))
    try:
        await attack(Harness(base, runner, ATTACKS[attack]))
    finally:
        await runner.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_attack(attack: Callable[[Harness], Awaitable[None]], tmp_path: Path) -> None:
    await perform(attack, tmp_path)


def test_attacks_as_an_ordinary_user(tmp_path: Path) -> None:
    ran = run_as_ordinary_user(__file__, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("blocked: ") == len(ATTACKS)


if __name__ == "__main__":
    for each in ATTACKS:
        place = Path(sys.argv[1], each.__name__)
        place.mkdir()
        asyncio.run(perform(each, place))
        print("blocked:", each.__name__)
