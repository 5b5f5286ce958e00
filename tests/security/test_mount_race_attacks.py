"""CVE-2026-87766 as a race: directories of the workspace are exchanged for links while bubblewrap mounts.

No look beforehand sees a link that appears afterwards. What these attacks meet is that bubblewrap itself can write
nothing outside the workspace. Each is made as root and, run as a program (``test_mount_race_attacks.py DIR``), as an
ordinary user. Without the protection the race is won about once in fifty starts on two processors.
"""

import asyncio
import ctypes
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from fakes.isolated import planned
from fakes.ordinary_user import run_as_ordinary_user
from palyra.errors import PalyraError
from palyra.sandbox.domain.facts import HostHold
from palyra.sandbox.domain.launch_spec import LaunchSpec
from palyra.sandbox.domain.plan import ARGS_FD, BubblewrapPlan, plan_isolated
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import Layer, SandboxProfile
from palyra.sandbox.launch.gated_sandbox import Gate, GatedReadback
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.layers.bubblewrap import to_launch_spec
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.verify.readback import NotBuilt

pytestmark = pytest.mark.promise("P-sandbox-holds")

STARTS = 80
FOLDERS = 24
# How long a folder is a link, and how long all are in order. Most looks must see them in order, or nothing starts.
SPINS = 500
PAUSE_SECONDS = 0.0002
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Harness:
    """Folders with a protected name in each, and beside each a link that leads out once bubblewrap has pivoted."""

    def __init__(self, base: Path) -> None:
        self.workspace, self.outside, self.scratch = base / "workspace", base / "outside", base / "scratch"
        for place in (self.workspace, self.outside, self.scratch):
            place.mkdir()
        (self.outside / "precious").write_text("as it was")
        self.pairs: list[tuple[bytes, bytes]] = []
        for number in range(FOLDERS):
            folder, link = self.workspace / f"p{number:02}", self.workspace / f"q{number:02}"
            (folder / ".git" / "hooks").mkdir(parents=True)
            (folder / ".env").write_text("A=1\n")
            link.symlink_to(self.out)
            self.pairs.append((os.fsencode(folder), os.fsencode(link)))
        self.profile = SandboxProfile(
            workspace_root=str(self.workspace), protected_names=(".git/hooks", ".env"), allow_interpreters=True
        )

    @property
    def out(self) -> str:
        return f"/oldroot{self.outside}"

    def untouched(self) -> bool:
        return os.listdir(self.outside) == ["precious"] and (self.outside / "precious").read_text() == "as it was"

    def exchange_for_ever(self) -> None:
        while True:
            for first, second in self.pairs:
                _libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
                for _ in range(SPINS):
                    pass
                _libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
                time.sleep(PAUSE_SECONDS)

    @contextmanager
    def raced(self) -> Iterator[None]:
        pid = os.fork()
        if pid == 0:
            try:
                self.exchange_for_ever()
            finally:
                os._exit(0)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    async def start_many(self) -> int:
        """How many programs ran; the others were refused because something moved."""
        runner = ProcessRunner(RunnerSettings(scratch=str(self.scratch)))
        ran = 0
        try:
            for _ in range(STARTS):
                with suppress(PalyraError):
                    outcome = await runner.run_constrained_process(self.profile, ProcessCommand(command="true"))
                    line = outcome.receipt.line(Layer.HOST_READ_ONLY)
                    assert line is not None
                    assert line.held, line.got
                    ran += 1
                assert self.untouched(), os.listdir(self.outside)
        finally:
            await runner.close()
        return ran


def race(base: Path) -> None:
    """A process that exchanges folders for links all the time, while many sandboxes start beside it."""
    harness = Harness(base)
    with harness.raced():
        ran = asyncio.run(harness.start_many())
    assert ran > 0
    assert harness.untouched()


def lost_race(base: Path) -> None:
    """What bubblewrap does when it meets such a link, without the luck: it is told to make mount points through one."""
    harness = Harness(base)
    (harness.workspace / "trap").symlink_to(harness.out)
    (harness.workspace / "system").symlink_to("/oldroot/new/usr")
    before = Path("/proc/self/mountinfo").read_bytes()
    for option in ("--dir", "--tmpfs"):
        plan = planned(harness.profile, ["/usr/bin/true"])
        assert plan.facts.host.hold is not HostHold.MISSING
        trap = str(harness.workspace / "trap" / "planted")
        spec = _with_options(to_launch_spec(plan), option, trap)
        assert spec.read_only_host is not None
        said = asyncio.run(_built(spec))
        # It is not there for bubblewrap. What is there, because the sandbox gets it, is read-only.
        assert "No such file or directory" in said, said
        assert harness.untouched()
        shown = str(harness.workspace / "system" / "planted")
        said = asyncio.run(_built(_with_options(to_launch_spec(plan), option, shown)))
        assert "Read-only file system" in said, said
        assert not Path("/usr/planted").exists()
        # The control: this bubblewrap does it where nothing holds it, unless it was mended.
        said = asyncio.run(_built(_with_options(to_launch_spec(_unheld(harness.profile)), option, trap)))
        if plan.facts.host.bwrap_version < (0, 12):
            assert (harness.outside / "planted").exists(), said
            (harness.outside / "planted").rmdir()
    assert Path("/proc/self/mountinfo").read_bytes() == before


def read_only_workspace(base: Path) -> None:
    """Then not even the workspace can be written by bubblewrap, and the program runs as always."""
    harness = Harness(base)
    profile = msgspec.structs.replace(harness.profile, read_only=True)

    async def listed() -> str:
        runner = ProcessRunner(RunnerSettings(scratch=str(harness.scratch)))
        try:
            outcome = await runner.run_constrained_process(profile, ProcessCommand(command="ls"))
        finally:
            await runner.close()
        line = outcome.receipt.line(Layer.HOST_READ_ONLY)
        assert line is not None
        assert line.held, line.got
        return outcome.stdout.decode()

    assert "p00" in asyncio.run(listed())
    spec = _with_options(to_launch_spec(planned(profile, ["/usr/bin/true"])), "--dir", str(harness.workspace / "made"))
    assert "Read-only file system" in asyncio.run(_built(spec))
    assert not (harness.workspace / "made").exists()


def _unheld(profile: SandboxProfile) -> BubblewrapPlan:
    """The same sandbox where the host cannot be hold: bubblewrap builds all of it."""
    plan = planned(profile, ["/usr/bin/true"])
    host = msgspec.structs.replace(plan.facts.host, hold=HostHold.MISSING)
    return plan_isolated(profile, (b"/usr/bin/true",), msgspec.structs.replace(plan.facts, host=host))


def _with_options(spec: LaunchSpec, *options: str) -> LaunchSpec:
    more = b"".join(os.fsencode(each) + b"\0" for each in options)
    data = {**dict(spec.data_fds)}
    # Before the roots are sealed, where the workspace's own mounts are made.
    head, seal, tail = data[ARGS_FD].partition(b"--remount-ro\0")
    data[ARGS_FD] = head + more + seal + tail
    return msgspec.structs.replace(spec, data_fds=tuple(sorted(data.items())))


async def _built(spec: LaunchSpec) -> str:
    """Has bubblewrap build its sandbox, ends it, and returns what it said."""
    with Gate() as gate, tempfile.TemporaryFile() as said:
        async with Launcher() as launcher:
            null = os.open(os.devnull, os.O_RDWR)
            child = await launcher.launch(
                spec, stdin=null, stdout=null, stderr=said.fileno(), fds=gate.child_descriptors
            )
            os.close(null)
            gate.hand_over()
            with suppress(NotBuilt), GatedReadback(await gate.describe()) as waiting:
                await asyncio.to_thread(waiting.settle)
            await child.kill()
        said.seek(0)
        return said.read().decode()


ATTACKS: tuple[Callable[[Path], None], ...] = (lost_race, race, read_only_workspace)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_nothing_outside_the_workspace_is_written(attack: Callable[[Path], None], tmp_path: Path) -> None:
    attack(tmp_path)


def test_the_same_as_an_ordinary_user(tmp_path: Path) -> None:
    ran = run_as_ordinary_user(__file__, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("blocked: ") == len(ATTACKS)


if __name__ == "__main__":
    for each in ATTACKS:
        place = Path(sys.argv[1], each.__name__)
        place.mkdir()
        each(place)
        print("blocked:", each.__name__)
