import asyncio
import errno
import hashlib
import os
import signal
from pathlib import Path

import pytest
import uvloop

from fakes.eventually import eventually
from fakes.launching import SHOW, alive, processes_with, python, run, started
from palyra.sandbox.domain.launch_spec import (
    BadLaunch,
    CgroupEntry,
    LauncherGone,
    LaunchFailed,
    LaunchSpec,
    LaunchStage,
    SupervisorLost,
)
from palyra.sandbox.launch.launcher import Launcher, count_tasks


async def test_the_program_gets_exactly_what_was_named(tmp_path: Path) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        async with Launcher() as launcher:
            spec = python(SHOW, "a b", "--x=*", "", cwd=os.fsencode(tmp_path), env=((b"ONE", b"1"), (b"TWO", b"")))
            ended, output = await run(launcher, spec)
    finally:
        os.close(leaked)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    assert ended.exit_code == 0, output
    arguments, env, cwd, umask, leader, descriptors, status = output.splitlines()
    assert arguments == "['a b', '--x=*', '']"
    assert env == "[('LC_CTYPE', 'C.UTF-8'), ('ONE', '1'), ('TWO', '')]"
    assert cwd == str(tmp_path)
    assert (umask, leader) == ("0o22", "True")
    # The fourth is the listing itself.
    assert descriptors == "[0, 1, 2, 3]"
    blocked, ignored, no_new_privs, seccomp = status.split()
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25).
    assert (int(blocked, 16), int(ignored, 16) & ~(1 << 12 | 1 << 24)) == (0, 0)
    assert (no_new_privs, seccomp) == ("1", "0")


async def test_nothing_is_ignored_in_a_program_that_is_not_python() -> None:
    async with Launcher() as launcher:
        _, output = await run(launcher, LaunchSpec(argv=(b"/bin/grep", b"SigIgn", b"/proc/self/status")))
    assert output.split()[1] == "0" * 16


async def test_data_and_passed_descriptors_are_at_their_numbers() -> None:
    read, write = os.pipe()
    os.write(write, b"from a pipe")
    script = """
import os, fcntl
print(os.read(10, 100), os.read(5, 100), os.read(4, 100), os.read(3, 100))
print(sorted(int(n) for n in os.listdir('/proc/self/fd')))
try:
    os.write(10, b'x')
except OSError as e:
    print('sealed', e.errno)
"""
    spec = python(script, data_fds=((10, b"ten"), (5, b"five"), (4, b"four")), pass_fds=(3,))
    async with Launcher() as launcher:
        _, output = await run(launcher, spec, fds=(read,))
    os.close(read)
    os.close(write)
    first, second, third = output.splitlines()
    assert first == "b'ten' b'five' b'four' b'from a pipe'"
    assert second == "[0, 1, 2, 3, 4, 5, 6, 10]"
    assert third == f"sealed {errno.EPERM}"


async def test_arguments_of_half_a_megabyte_arrive_whole() -> None:
    big = tuple(bytes([65 + n % 26]) * 4096 for n in range(128))
    script = "import sys, hashlib; print(hashlib.sha256('\\0'.join(sys.argv[1:]).encode()).hexdigest(), open(7).read())"
    spec = python(script, *(argument.decode() for argument in big), data_fds=((7, b"seven"),))
    async with Launcher() as launcher:
        ended, output = await run(launcher, spec)
    assert ended.exit_code == 0
    assert output.split() == [hashlib.sha256(b"\0".join(big)).hexdigest(), "seven"]


async def test_a_failed_start_names_its_stage_and_errno(tmp_path: Path) -> None:
    text = tmp_path / "not a program"
    text.write_text("hello")
    text.chmod(0o755)
    cases = [
        (LaunchSpec(argv=(b"/nonexistent/program",)), LaunchStage.EXEC, errno.ENOENT),
        (LaunchSpec(argv=(os.fsencode(text),)), LaunchStage.EXEC, errno.ENOEXEC),
        (LaunchSpec(argv=(b"/bin/true",), cwd=b"/nonexistent"), LaunchStage.WORKING_DIRECTORY, errno.ENOENT),
        (LaunchSpec(argv=(b"/bin/true",), cgroup=CgroupEntry(v1=("/nonexistent",))), LaunchStage.CGROUP, errno.ENOENT),
        (LaunchSpec(argv=(b"/bin/true",), seccomp=b"\xff" * 8), LaunchStage.SECCOMP, errno.EINVAL),
    ]
    async with Launcher() as launcher:
        for spec, stage, number in cases:
            with pytest.raises(LaunchFailed) as failed:
                await run(launcher, spec)
            assert (failed.value.details["stage"], failed.value.details["errno"]) == (stage.value, number)
        assert launcher.running == 0
        ended, _ = await run(launcher, LaunchSpec(argv=(b"/bin/true",)))
        assert ended.exit_code == 0


async def test_exit_codes_and_signals_are_told_apart() -> None:
    async with Launcher() as launcher:
        ended, _ = await run(launcher, python("raise SystemExit(127)"))
        assert (ended.exit_code, ended.signal) == (127, None)
        ended, _ = await run(launcher, python("import os; os.kill(os.getpid(), 11)"))
        assert (ended.exit_code, ended.signal) == (None, signal.SIGSEGV)


async def test_kill_returns_when_nothing_is_left_and_can_be_repeated() -> None:
    async with Launcher() as launcher, started(launcher, LaunchSpec(argv=(b"/bin/sleep", b"60"))) as (child, _):
        assert alive(child.pid)
        first, second = await asyncio.gather(child.kill(), child.kill())
        assert first == second
        assert first.signal == signal.SIGKILL
        assert not Path(f"/proc/{child.pid}").exists()


async def test_bad_specs_are_refused() -> None:
    for changes in (
        {"argv": ()},
        {"argv": (b"true",)},
        {"argv": (b"/bin/true", b"a\0b")},
        {"cwd": b"here"},
        {"env": ((b"A=B", b""),)},
        {"data_fds": ((2, b""),)},
        {"data_fds": ((5, b""), (5, b""))},
        {"pass_fds": (64,)},
    ):
        with pytest.raises(BadLaunch):
            LaunchSpec(**{"argv": (b"/bin/true",), **changes})
    async with Launcher() as launcher:
        with pytest.raises(BadLaunch):
            await run(launcher, LaunchSpec(argv=(b"/bin/true",), pass_fds=(5,)))


def test_it_works_under_uvloop() -> None:
    async def body() -> list[int | None]:
        async with Launcher() as launcher:
            runs = await asyncio.gather(*(run(launcher, LaunchSpec(argv=(b"/bin/true",))) for _ in range(8)))
        return [ended.exit_code for ended, _ in runs]

    assert uvloop.run(body()) == [0] * 8


async def test_two_hundred_at_once_leave_no_process_and_no_descriptor() -> None:
    marker = f"marker-{os.getpid()}-crowd"
    script = "import subprocess, sys; subprocess.Popen(['/bin/sleep', '77']); print(sys.argv[1])"
    async with Launcher() as launcher:
        await run(launcher, LaunchSpec(argv=(b"/bin/true",)))
        await eventually(lambda: launcher.ready == 1)
        before = len(os.listdir("/proc/self/fd"))
        runs = await asyncio.gather(*(run(launcher, python(script, marker)) for _ in range(200)))
        assert all(ended.exit_code == 0 and marker in output for ended, output in runs)
        assert all(ended.orphans_killed == 1 for ended, _ in runs)
        assert launcher.running == 0
        assert processes_with(marker) == []
        await eventually(lambda: launcher.ready >= 1)
        # Ready supervisors hold two descriptors each.
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 2 * (launcher.ready - 1))
        zygote = launcher.zygote_pid
    assert zygote is not None
    assert not Path(f"/proc/{zygote}").exists()


async def test_a_cancelled_launch_leaves_nothing() -> None:
    marker = f"marker-{os.getpid()}-cancelled"
    async with Launcher() as launcher:
        for turns in range(12):
            task = asyncio.ensure_future(run(launcher, python("import time; time.sleep(60)", marker)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await eventually(lambda: launcher.running == 0 and not processes_with(marker))


async def test_closing_ends_what_runs() -> None:
    marker = f"marker-{os.getpid()}-closing"
    launcher = Launcher()
    await launcher.start()
    with open(os.devnull, "r+b") as nothing:
        number = nothing.fileno()
        spec = python("import time; time.sleep(60)", marker)
        child = await launcher.launch(spec, stdin=number, stdout=number, stderr=number)
    await launcher.close()
    assert processes_with(marker) == []
    assert (await child.wait()).signal == signal.SIGKILL
    with pytest.raises(LauncherGone):
        await launcher.start()


async def test_a_killed_zygote_is_replaced() -> None:
    async with Launcher() as launcher:
        await run(launcher, LaunchSpec(argv=(b"/bin/true",)))
        first = launcher.zygote_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: launcher.zygote_pid is None)
        ended, _ = await run(launcher, LaunchSpec(argv=(b"/bin/true",)))
        assert ended.exit_code == 0
        assert launcher.zygote_pid not in (None, first)


async def test_a_ready_keeper_that_was_killed_is_passed_over() -> None:
    async with Launcher() as launcher:
        await eventually(lambda: launcher.ready)
        (supervisor,) = launcher._pool.ready
        os.kill(supervisor.pid, signal.SIGKILL)
        # A signal takes its time: it must be dead before the launcher can know.
        await eventually(lambda: not supervisor.waits())
        for _ in range(2):
            ended, _ = await run(launcher, LaunchSpec(argv=(b"/bin/true",)))
            assert ended.exit_code == 0


async def test_a_killed_keeper_is_reported_after_its_tree_is_gone() -> None:
    marker = f"marker-{os.getpid()}-lost"
    async with Launcher() as launcher, started(launcher, python("import time; time.sleep(60)", marker)) as (child, _):
        supervisor = int(Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        os.kill(supervisor, signal.SIGKILL)
        with pytest.raises(SupervisorLost) as lost:
            await child.wait()
        assert lost.value.details["swept"] is True
        assert processes_with(marker) == []


async def test_the_count_of_tasks_includes_the_launchers_own() -> None:
    async with Launcher() as launcher:
        await eventually(lambda: launcher.ready == 1)
        assert launcher.tasks_of_user() >= count_tasks() + 1 + 2 - 64


async def test_a_cancelled_launch_is_over_when_it_says_so() -> None:
    """Its supervisor empties the control group that the next program may already be given."""
    async with Launcher() as launcher:
        cancelled = 0
        for waited in range(60):
            with open(os.devnull, "r+b") as null:
                number = null.fileno()
                launching = asyncio.create_task(
                    launcher.launch(python("import time; time.sleep(60)"), stdin=number, stdout=number, stderr=number)
                )
                await eventually(lambda: launcher.running, every=0)
                for _ in range(waited % 3):
                    await asyncio.sleep(0)
                launching.cancel()
                await asyncio.sleep(0)
                # Twice, as a caller in a hurry may.
                launching.cancel()
                try:
                    # On a busy machine the program may have begun before anybody wanted it stopped.
                    await (await launching).kill()
                except asyncio.CancelledError:
                    cancelled += 1
            assert launcher.running == 0
            if cancelled == 6:
                break
        assert cancelled == 6
