"""Programs that eat, flood, fork, hide and refuse to end. Each call ends in its time, and nothing of it is left.

Run as a program (``test_sandbox_resources.py DIR``) it performs all of them as whoever runs it.
"""

import asyncio
import contextlib
import os
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.eventually import eventually
from fakes.ordinary_user import run_as_ordinary_user
from fakes.processes import descendants, marked, new_mark, resident_bytes
from palyra.errors import PalyraError
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome, ProcessTimedOut, QuotaExceeded
from palyra.sandbox.domain.profile import SandboxLimits, SandboxProfile, SandboxTier
from palyra.sandbox.launch.supervisor_pool import READY_SUPERVISORS
from palyra.sandbox.layers.cgroup import KEPT_GROUPS
from palyra.sandbox.runner import ProcessRunner, RunnerSettings

pytestmark = pytest.mark.promise("P-sandbox-ends")

MIB = 1024 * 1024
# For programs that would not end by themselves.
DEADLINE_MS = 1_200
# Only there to end a test whose program hangs: a busy machine is no fault.
PATIENCE_MS = 30_000
HANG_SECONDS = 40.0
LIMITS = SandboxLimits(
    timeout_ms=PATIENCE_MS,
    memory_bytes=192 * MIB,
    pids=48,
    cpu_seconds=10,
    open_files=128,
    file_bytes=8 * MIB,
    max_output_bytes=64 * 1024,
)


class Arena:
    def __init__(self, base: Path, tier: SandboxTier, **settings: Any) -> None:
        self.workspace = base / "workspace"
        self.scratch = base / "scratch"
        self.workspace.mkdir()
        self.scratch.mkdir()
        self.runner = ProcessRunner(RunnerSettings(scratch=str(self.scratch), **settings))
        self.profile = SandboxProfile(
            workspace_root=str(self.workspace), tier=tier, limits=LIMITS, allow_interpreters=True
        )

    async def __aenter__(self) -> "Arena":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Also after a failure: what is left open would be blamed on whichever test comes next."""
        await self.runner.close()

    async def python(self, script: str, *, timeout_ms: int = PATIENCE_MS) -> ProcessOutcome:
        """Runs a script, and makes sure that afterwards nothing with its mark lives."""
        mark = new_mark()
        limits = msgspec.structs.replace(self.profile.limits, timeout_ms=timeout_ms)
        profile = msgspec.structs.replace(self.profile, limits=limits)
        words = ("-I", "-c", "import ctypes, mmap, os, signal, sys, threading, time\n" + textwrap.dedent(script), mark)
        try:
            async with asyncio.timeout(HANG_SECONDS):
                return await self.runner.run_constrained_process(profile, ProcessCommand(command="python3", args=words))
        finally:
            assert marked(mark) == {}

    async def python_without_end(self, script: str) -> None:
        with pytest.raises(ProcessTimedOut):
            await self.python(script, timeout_ms=DEADLINE_MS)


async def attack_output_flood(arena: Arena) -> None:
    with pytest.raises(QuotaExceeded) as flood:
        await arena.python(
            """
            if os.fork() == 0:
                while True: os.write(2, b"e" * 65536)
            while True: os.write(1, b"o" * 65536)
            """
        )
    partial = flood.value.outcome
    assert partial is not None and len(partial.stdout) + len(partial.stderr) == LIMITS.max_output_bytes


async def attack_output_flood_after_the_end(arena: Arena) -> None:
    """The program is gone; what it left behind goes on writing."""
    outcome: ProcessOutcome | None = None
    try:
        outcome = await arena.python(
            """
            if os.fork() == 0:
                os.setsid()
                while True: os.write(1, b"x" * 65536)
            """
        )
    except QuotaExceeded:
        return
    assert outcome.exit_code == 0


async def attack_output_in_the_hands_of_another(arena: Arena) -> None:
    """Two programs of one workspace: the second gives its streams to the first, and ends. What the first does with
    them, hold them or write without end, is not waited for."""
    for does in ("time.sleep(0.01)", 'os.write(given[0], b"x" * 4096)'):
        accomplice = asyncio.ensure_future(
            arena.python(
                f"""
                import socket
                try: door = socket.socket(socket.AF_UNIX)
                except OSError: print("free") or sys.exit()
                door.bind("door")
                door.listen()
                other, _ = door.accept()
                _, given, _, _ = socket.recv_fds(other, 1, 2)
                other.send(b"x")
                while not os.path.exists("over"):
                    try: {does}
                    except BrokenPipeError: pass
                print("free")
                """
            )
        )
        with contextlib.suppress(QuotaExceeded):
            outcome = await arena.python(
                """
                import socket
                print("mine", flush=True)
                try: door = socket.socket(socket.AF_UNIX)
                except OSError: sys.exit()
                while True:
                    try: door.connect("door")
                    except (FileNotFoundError, ConnectionRefusedError): time.sleep(0.01)
                    else: break
                socket.send_fds(door, [b"x"], [1, 2])
                door.recv(1)
                """
            )
            assert outcome.stdout.startswith(b"mine\n")
        (arena.workspace / "over").touch()
        assert (await accomplice).stdout == b"free\n"
        for name in os.listdir(arena.workspace):
            os.unlink(arena.workspace / name)


async def attack_fork_bomb(arena: Arena) -> None:
    await arena.python_without_end(
        """
        while True:
            try: os.fork()
            except OSError: pass
        """
    )


async def attack_threads(arena: Arena) -> None:
    outcome = await arena.python(
        """
        made = 0
        threading.stack_size(65536)
        try:
            for made in range(100_000):
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        except RuntimeError:
            pass
        print(made, flush=True)
        os._exit(0)
        """
    )
    # Without a control group the kernel counts all of the user's tasks, and some of those may end meanwhile.
    assert int(outcome.stdout) <= LIMITS.pids + 32


async def attack_hopping(arena: Arena) -> None:
    """Each process lives for a moment and leaves a child: a number that is read is already stale."""
    await arena.python_without_end(
        """
        def forked():
            # Without a control group other programs of this user count too, and may have used up the number.
            while True:
                try:
                    return os.fork()
                except OSError: time.sleep(0.01)
        if forked() == 0:
            os.setsid()
            while True:
                if forked(): os._exit(0)
        time.sleep(60)
        """
    )


async def attack_memory(arena: Arena) -> None:
    outcome = await arena.python(
        """
        kept = []
        while len(kept) < 100:
            kept.append(bytearray(b"x" * (16 << 20)))
        print("ESCAPED")
        """
    )
    assert outcome.stdout == b"" and outcome.exit_code != 0


async def attack_memory_without_reserve(arena: Arena) -> None:
    outcome = await arena.python(
        """
        area = mmap.mmap(-1, 2 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
        for page in range(0, 1 << 30, 4096): area[page] = 1
        print("ESCAPED")
        """
    )
    assert outcome.stdout == b"" and outcome.exit_code != 0


async def attack_setsid_daemon(arena: Arena) -> None:
    outcome = await arena.python(
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(0, 256)
                signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
                time.sleep(300)
            os._exit(0)
        os.wait()
        print("left one behind")
        """
    )
    assert outcome.exit_code == 0 and outcome.stdout == b"left one behind\n"


async def attack_daemon_that_keeps_the_pipes(arena: Arena) -> None:
    outcome = await arena.python("if os.fork() == 0: os.setsid(); time.sleep(300)")
    assert outcome.exit_code == 0


async def attack_stopped_child(arena: Arena) -> None:
    await arena.python_without_end(
        """
        if os.fork() == 0:
            os.setsid()
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGSTOP)
        """
    )


async def attack_stopped_orphan(arena: Arena) -> None:
    outcome = await arena.python(
        """
        child = os.fork()
        if child == 0:
            os.setsid()
            os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        """
    )
    assert outcome.exit_code == 0


async def attack_large_files(arena: Arena) -> None:
    outcome = await arena.python(
        """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for path in ("sparse", "plain"):
            try:
                with open(path, "wb", buffering=0) as file:
                    if path == "sparse": file.truncate(1 << 40)
                    else:
                        while True: file.write(b"x" * (1 << 20))
                print("ESCAPED")
            except OSError: pass
        """
    )
    assert outcome.stdout == b"" and outcome.exit_code == 0
    for name in os.listdir(arena.workspace):
        assert (arena.workspace / name).stat().st_size <= LIMITS.file_bytes


async def attack_descriptors(arena: Arena) -> None:
    outcome = await arena.python(
        """
        try:
            for made in range(100_000): os.dup(0)
        except OSError:
            print(made)
        """
    )
    assert int(outcome.stdout) < LIMITS.open_files


async def attack_by_refusing_signals(arena: Arena) -> None:
    await arena.python_without_end("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: time.sleep(1)")


ATTACKS: tuple[Callable[[Arena], Awaitable[None]], ...] = (
    attack_output_flood,
    attack_output_flood_after_the_end,
    attack_output_in_the_hands_of_another,
    attack_fork_bomb,
    attack_threads,
    attack_hopping,
    attack_memory,
    attack_memory_without_reserve,
    attack_setsid_daemon,
    attack_daemon_that_keeps_the_pipes,
    attack_stopped_child,
    attack_stopped_orphan,
    attack_large_files,
    attack_descriptors,
    attack_by_refusing_signals,
)


async def perform(attack: Callable[[Arena], Awaitable[None]], base: Path, tier: SandboxTier) -> None:
    async with Arena(base, tier) as arena:
        await attack(arena)
        # The machine and the runner are as fit as before.
        outcome = await arena.python("print('well')")
        assert outcome.stdout == b"well\n"
    assert os.listdir(arena.scratch) == []


@pytest.mark.parametrize("tier", list(SandboxTier))
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.removeprefix("attack_"))
async def test_attack(attack: Callable[[Arena], Awaitable[None]], tmp_path: Path, tier: SandboxTier) -> None:
    await perform(attack, tmp_path, tier)


@pytest.mark.parametrize("tier", list(SandboxTier))
def test_attacks_by_an_ordinary_user(tmp_path: Path, tier: SandboxTier) -> None:
    done = run_as_ordinary_user(__file__, tmp_path, tier.value)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [attack.__name__ for attack in ATTACKS]


async def test_the_runners_memory_stays_flat(tmp_path: Path) -> None:
    for tier in SandboxTier:
        base = tmp_path / tier.value
        base.mkdir()
        flood = ProcessCommand(command="yes")
        sizes = []
        async with Arena(base, tier) as arena:
            for _ in range(25):
                with pytest.raises(QuotaExceeded):
                    await arena.runner.run_constrained_process(arena.profile, flood)
                sizes.append(resident_bytes(os.getpid()))
        assert sizes[-1] - sizes[4] < 8 * MIB, sizes


def open_files() -> tuple[int, set[str]]:
    """How many descriptors this process has open, without those of control groups, and the folders of those."""
    others, groups = 0, set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            path = os.readlink(f"/proc/self/fd/{name}")
            if path.startswith("/sys/fs/cgroup/"):
                groups.add(os.path.dirname(path))
            else:
                others += 1
    return others, groups


def groups_of(folders: set[str]) -> int:
    """A group has a folder in each hierarchy."""
    return len({os.path.basename(folder) for folder in folders})


async def comes_true(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    try:
        await eventually(condition, HANG_SECONDS)
    except AssertionError:
        raise AssertionError(what()) from None


@pytest.mark.promise("P-floods")
@pytest.mark.parametrize("tier", list(SandboxTier))
async def test_two_hundred_at_once(tmp_path: Path, tier: SandboxTier) -> None:
    mark = new_mark()
    most_groups = KEPT_GROUPS + 2 * READY_SUPERVISORS
    before, groups_before = open_files()
    async with Arena(tmp_path, tier) as arena:
        profile = SandboxProfile(
            workspace_root=str(arena.workspace),
            tier=tier,
            protected_names=(".git/hooks", ".env*"),
            limits=SandboxLimits(timeout_ms=100_000),
        )

        async def one(number: int) -> int:
            command = ProcessCommand(command="echo", args=(f"{mark} {number}",))
            outcome = await arena.runner.run_constrained_process(profile, command)
            assert outcome.stdout == f"{mark} {number}\n".encode() and outcome.exit_code == 0
            return max(line.held for line in outcome.receipt.lines)

        await one(-1)
        await comes_true(lambda: arena.runner.ready == READY_SUPERVISORS, lambda: arena.runner.ready)
        processes, (files, _) = len(descendants(os.getpid())), open_files()
        await asyncio.gather(*(one(number) for number in range(200)))
        assert marked(mark) == {}
        # A few keepers and sandboxes more or less may be waiting for work, each with a few descriptors. Control groups
        # that are clean are kept for the next programs, but no more of them than are of use.
        await comes_true(lambda: len(descendants(os.getpid())) <= processes + 16, lambda: descendants(os.getpid()))
        await comes_true(lambda: open_files()[0] <= files + 16, open_files)
        await comes_true(lambda: groups_of(open_files()[1] - groups_before) <= most_groups, open_files)
        groups = [place.directory for place in arena.runner._cgroups._bases or ()]
    assert os.listdir(arena.scratch) == [] and os.listdir(arena.workspace) == []
    assert not [group for group in groups if os.path.exists(group)]
    # One for the image that every sandbox is started from, which this process keeps.
    after, kept = open_files()
    assert after <= before + 1 and kept <= groups_before


@pytest.mark.promise("P-floods")
async def test_a_queue_that_is_full_says_so(tmp_path: Path) -> None:
    command = ProcessCommand(command="sleep", args=("0.3",))
    async with Arena(tmp_path, SandboxTier.B, max_running=2, max_waiting=3) as arena:

        async def one() -> str:
            try:
                return str((await arena.runner.run_constrained_process(arena.profile, command)).exit_code)
            except PalyraError as error:
                return error.code

        await one()
        answers = await asyncio.gather(*(one() for _ in range(40)))
        assert set(answers) == {"0", "sandbox.too_many_waiting"} and answers.count("0") >= 5
        assert await one() == "0"


async def _perform_all(base: Path, tier: SandboxTier) -> None:
    for attack in ATTACKS:
        folder = base / attack.__name__
        folder.mkdir()
        await perform(attack, folder, tier)
        print(attack.__name__, flush=True)


if __name__ == "__main__":
    asyncio.run(_perform_all(Path(sys.argv[1]), SandboxTier(sys.argv[2])))
