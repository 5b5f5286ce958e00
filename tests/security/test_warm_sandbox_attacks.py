"""Sandboxes that wait for a call: what changes meanwhile, who is near them, and what is left of them.

Run as a program (``test_warm_sandbox_attacks.py DIR``) it makes all attempts as an ordinary user.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually, eventually_sync
from fakes.processes import descendants
from palyra.errors import PalyraError
from palyra.sandbox import limits
from palyra.sandbox.domain.process_run import InterpreterDenied, ProcessCommand, ProcessOutcome, SpawnFailed
from palyra.sandbox.domain.profile import Layer, SandboxLimits, SandboxProfile
from palyra.sandbox.launch.built_sandbox import PrewarmedSandbox
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.running_process import outcome_of

pytestmark = pytest.mark.promise("P-sandbox-holds")

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"
SOON = 0.01
PATIENCE_SECONDS = 30.0
PROTECTED = (".git/hooks", ".git/config", ".env*")


class WarmSandboxHarness:
    """A runner whose sandboxes wait, and its workspace."""

    def __init__(self, base: Path, **settings: Any) -> None:
        self.workspace = base / "workspace"
        self.scratch = base / "scratch"
        self.workspace.mkdir(parents=True)
        self.scratch.mkdir()
        self.runner = ProcessRunner(RunnerSettings(scratch=str(self.scratch), **settings))

    def profile(self, **changes: Any) -> SandboxProfile:
        changes.setdefault("allow_interpreters", True)
        return SandboxProfile(workspace_root=str(self.workspace), protected_names=PROTECTED, **changes)

    async def shell(self, script: str, profile: SandboxProfile | None = None, **more: Any) -> ProcessOutcome:
        command = ProcessCommand(command="sh", args=("-c", script), **more)
        return await self.runner.run_constrained_process(profile or self.profile(), command)

    async def warm(self, profile: SandboxProfile | None = None) -> tuple[PrewarmedSandbox, ...]:
        """Runs something, and waits until as many sandboxes wait as shall."""
        await self.shell("true", profile)
        return await self.full()

    async def full(self) -> tuple[PrewarmedSandbox, ...]:
        await eventually(lambda: len(self.runner.prewarm.waiting) == limits.WARM_PER_PROFILE)
        return self.runner.prewarm.waiting

    async def used(self, script: str, **more: Any) -> tuple[PrewarmedSandbox | None, ProcessOutcome]:
        """Which sandbox a call had, and how it ended."""
        command = ProcessCommand(command="sh", args=("-c", script), **more)
        async with self.runner.started(self.profile(), command) as running:
            ended = await running.wait(PATIENCE_SECONDS)
        return running.sandbox, outcome_of(self.profile(), running, ended)


async def one_that_waits_serves_one_call_and_no_other(harness: WarmSandboxHarness) -> None:
    before: set[int] = set()
    for _ in range(5):
        waiting = await harness.warm()
        assert all(each.child.pid not in before for each in waiting)
        script = "ls -A /tmp /run $HOME; touch /tmp/left $HOME/left"
        sandbox, ended = await harness.used(script)
        assert sandbox is waiting[0]
        assert b"left" not in ended.stdout and ended.exit_code == 0
        before.add(sandbox.child.pid)
        assert sandbox.child.ended and sandbox not in harness.runner.prewarm.waiting


async def a_protected_name_that_appeared_is_protected(harness: WarmSandboxHarness) -> None:
    waiting = await harness.warm()
    (harness.workspace / ".env").write_text("secret")
    sandbox, ended = await harness.used("echo planted > .env; mv .env away; rm -f .env; cat .env")
    assert sandbox not in waiting and ended.stdout == b"secret"
    assert (harness.workspace / ".env").read_text() == "secret"


async def a_protected_file_that_was_replaced_is_protected(harness: WarmSandboxHarness) -> None:
    config = harness.workspace / ".env"
    config.write_text("first")
    for number in range(4):
        waiting = await harness.warm()
        (harness.workspace / "new").write_text(f"text {number}")
        # The number of the old inode may be the new one's: nothing else holds it.
        os.replace(harness.workspace / "new", config)
        sandbox, ended = await harness.used("echo planted > .env; rm -f .env; cat .env")
        assert sandbox not in waiting and ended.stdout == f"text {number}".encode()
        assert config.read_text() == f"text {number}"


async def removed_and_made_again_under_the_same_number(harness: WarmSandboxHarness) -> None:
    env = harness.workspace / ".env"
    env.write_text("first")
    number = env.stat().st_ino
    same = 0
    for attempt in range(12):
        waiting = await harness.warm()
        env.unlink()
        env.write_text("again")
        same += env.stat().st_ino == number
        number = env.stat().st_ino
        sandbox, _ = await harness.used("echo planted > .env; mv .env away")
        assert sandbox not in waiting, attempt
        assert env.read_text() == "again"


async def a_directory_above_that_was_moved_is_noticed(harness: WarmSandboxHarness) -> None:
    (harness.workspace / "deep" / ".git" / "hooks").mkdir(parents=True)
    waiting = await harness.warm()
    (harness.workspace / "deep").rename(harness.workspace / "moved")
    sandbox, _ = await harness.used("touch moved/.git/hooks/pre-commit; mv moved/.git elsewhere")
    assert sandbox not in waiting
    assert os.listdir(harness.workspace / "moved" / ".git" / "hooks") == []
    waiting = await harness.full()
    shutil.move(harness.workspace / "moved", harness.workspace / "back")
    (harness.workspace / "back").rename(harness.workspace / "moved")
    _, ended = await harness.used("touch moved/.git/hooks/pre-commit; ls moved/.git/hooks")
    assert ended.stdout == b""


async def a_workspace_that_was_exchanged_is_not_the_one(harness: WarmSandboxHarness) -> None:
    waiting = await harness.warm()
    harness.workspace.rename(harness.workspace.with_name("old"))
    harness.workspace.mkdir()
    sandbox, _ = await harness.used("touch made")
    assert sandbox not in waiting
    assert os.listdir(harness.workspace) == ["made"] and os.listdir(harness.workspace.with_name("old")) == []


async def a_program_reaches_none_that_waits(harness: WarmSandboxHarness) -> None:
    waiting = await harness.warm()
    sandbox, ended = await harness.used(
        "ls /proc | grep -c '^[0-9]'; kill -9 -1; kill -STOP 1; echo 1 > /proc/1/oom_adj"
    )
    assert sandbox is waiting[0]
    assert int(ended.stdout.split()[0]) <= 5, "it sees its own processes only"
    assert waiting[1].waits
    sandbox, ended = await harness.used("echo served")
    assert sandbox is waiting[1] and ended.stdout == b"served\n"


async def a_program_gets_nothing_but_its_streams(harness: WarmSandboxHarness) -> None:
    await harness.warm()
    script = "ls /proc/self/fd /proc/1/fd; grep -E 'Seccomp:|NoNewPrivs|Cap(Prm|Eff|Bnd)' /proc/self/status; env; pwd"
    (harness.workspace / "sub").mkdir()
    sandbox, ended = await harness.used(script, cwd="sub", env=(("ASKED", "for it"),))
    assert sandbox is not None
    said = ended.stdout.decode()
    # The third of each is the listing itself.
    assert said.count("\n0\n1\n2\n") == 2 and "60" not in said.split("Cap")[0] and "61" not in said.split("Cap")[0]
    assert "Seccomp:\t2" in said and "NoNewPrivs:\t1" in said and re.search(r"CapEff:\t0{16}\n", said)
    assert "ASKED=for it\n" in said and f"PWD={harness.workspace}/sub\n" in said
    assert said.endswith(f"\n{harness.workspace}/sub\n")


async def words_come_as_they_are(harness: WarmSandboxHarness) -> None:
    await harness.warm()
    odd = ("", " ", "a b", "$(id) `id` ; | & > <", "-c", "--args", "ünï ☃", "x" * 4000)
    command = ProcessCommand(command="printf", args=("%s\\0", *odd))
    outcome = await harness.runner.run_constrained_process(harness.profile(), command)
    assert outcome.stdout.decode().split("\0") == [*odd, ""]
    await harness.full()
    # Too long for one message: it travels as a memory file.
    many = tuple("y" * 4000 for _ in range(100))
    command = ProcessCommand(command="printf", args=("%s", *many))
    larger = harness.profile(limits=SandboxLimits(max_output_bytes=10**6))
    outcome = await harness.runner.run_constrained_process(larger, command)
    assert len(outcome.stdout) == 400_000
    await harness.full()
    outcome = await harness.shell("wc -c", stdin=b"z" * 300_000)
    assert outcome.stdout.strip() == b"300000"


async def the_receipt_is_the_same(harness: WarmSandboxHarness) -> None:
    cold = await harness.shell("true")
    assert await harness.full()
    warm = await harness.shell("true")

    def plain(outcome: ProcessOutcome) -> list[dict[str, Any]]:
        return [{**line, "got": re.sub(r"\[\d+\]", "[N]", line["got"])} for line in outcome.receipt.as_dicts()]

    assert plain(cold) == plain(warm)
    assert {line["layer"] for line in plain(warm)} >= {layer.value for layer in harness.profile().required_layers}
    assert all(line.held for line in warm.receipt.lines if line.layer in harness.profile().required_layers)
    filtered = warm.receipt.line(Layer.SECCOMP)
    assert filtered is not None and filtered.got.startswith("Seccomp 2 (before the program started")


async def what_cannot_be_executed_says_so(harness: WarmSandboxHarness) -> None:
    await harness.warm()
    (harness.workspace / "script").write_text("#!/nonexistent/x\n")
    (harness.workspace / "script").chmod(0o755)
    with pytest.raises(SpawnFailed):
        await harness.runner.run_constrained_process(harness.profile(), ProcessCommand(command="./script"))
    await harness.full()
    with pytest.raises(SpawnFailed):
        async with harness.runner.started(harness.profile(), ProcessCommand(command="./script")):
            raise AssertionError("it must not be reached")


async def a_refused_call_uses_none_up(harness: WarmSandboxHarness) -> None:
    waiting = await harness.warm()
    with pytest.raises(InterpreterDenied):
        await harness.shell("true", harness.profile(allow_interpreters=False))
    assert set(harness.runner.prewarm.waiting) == set(waiting) and all(each.waits for each in waiting)


async def a_call_that_is_given_up_leaves_nothing(harness: WarmSandboxHarness) -> None:
    for number in range(6):
        await harness.warm()
        call = asyncio.ensure_future(harness.shell("sleep 100"))
        await asyncio.sleep(0.002 * number)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    waiting = await harness.warm()
    await eventually(lambda: harness.runner._launcher.running == len(waiting))


async def limits_hold(harness: WarmSandboxHarness) -> None:
    small = harness.profile(limits=SandboxLimits(pids=8, file_bytes=4096, open_files=64))
    await harness.warm(small)
    ended = await harness.shell("ulimit -n; ulimit -c; head -c 9000 /dev/zero > big; wc -c < big", small)
    assert ended.stdout.split() == [b"64", b"0", b"4096"]
    await harness.full()
    ended = await harness.shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 2 & done; wait", small)
    assert b"fork" in ended.stderr or b"Resource" in ended.stderr


async def nothing_is_made_where_a_name_goes_away_while_it_is_built(harness: WarmSandboxHarness) -> None:
    """bubblewrap would make what it is to mount on, where that vanished after the look: an empty file or folder."""
    names = (".env", "deep/.git/config")
    stop = threading.Event()
    ghosts: list[str] = []

    def come_and_go() -> None:
        while not stop.is_set():
            for name in names:
                path = harness.workspace / name
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    with path.open("x") as file:
                        file.write("ours")
                except FileExistsError:
                    ghosts.append(name)
                    return
                time.sleep(0.0005)
                path.unlink()

    user = asyncio.create_task(asyncio.to_thread(come_and_go))
    try:
        for _ in range(60):
            with contextlib.suppress(PalyraError):
                await harness.shell("true")
    finally:
        stop.set()
        await user
    assert ghosts == []


async def one_that_died_is_not_used(harness: WarmSandboxHarness) -> None:
    waiting = await harness.warm()
    for each in waiting:
        await each.child.kill()
    sandbox, ended = await harness.used("echo fine")
    assert sandbox not in waiting and ended.stdout == b"fine\n"


ATTEMPTS: tuple[Callable[[WarmSandboxHarness], Awaitable[None]], ...] = (
    one_that_waits_serves_one_call_and_no_other,
    a_protected_name_that_appeared_is_protected,
    a_protected_file_that_was_replaced_is_protected,
    removed_and_made_again_under_the_same_number,
    a_directory_above_that_was_moved_is_noticed,
    a_workspace_that_was_exchanged_is_not_the_one,
    a_program_reaches_none_that_waits,
    a_program_gets_nothing_but_its_streams,
    words_come_as_they_are,
    the_receipt_is_the_same,
    what_cannot_be_executed_says_so,
    a_refused_call_uses_none_up,
    a_call_that_is_given_up_leaves_nothing,
    limits_hold,
    nothing_is_made_where_a_name_goes_away_while_it_is_built,
    one_that_died_is_not_used,
)


async def attempt(make: Callable[[WarmSandboxHarness], Awaitable[None]], base: Path) -> None:
    before = descendants(os.getpid())
    held = len(os.listdir("/proc/self/fd"))
    harness = WarmSandboxHarness(base)
    try:
        await make(harness)
    finally:
        await harness.runner.close()
    assert descendants(os.getpid()) <= before
    assert os.listdir(harness.scratch) == []
    # The file that waiting processes are made of is kept.
    assert len(os.listdir("/proc/self/fd")) <= held + 1


@pytest.mark.parametrize("make", ATTEMPTS, ids=lambda make: make.__name__)
async def test_attempt(make: Callable[[WarmSandboxHarness], Awaitable[None]], tmp_path: Path) -> None:
    await attempt(make, tmp_path)


def test_attempts_as_an_ordinary_user() -> None:
    base = Path(tempfile.mkdtemp(prefix="palyra-warm-"))
    root = os.geteuid() == 0
    switch = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if root else []
    try:
        if root:
            os.chown(base, NOBODY, NOBODY)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
        ran = subprocess.run(
            [*switch, SYSTEM_PYTHON if root else sys.executable, __file__, str(base)],
            env=environment | {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(base)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stdout.count("blocked: ") == len(ATTEMPTS) + 1, ran.stdout + ran.stderr
    finally:
        shutil.rmtree(base)


async def test_they_are_few_and_end_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WARM", 3)
    harness = WarmSandboxHarness(tmp_path)
    try:
        for pids in range(20, 25):
            await harness.shell("true", harness.profile(limits=SandboxLimits(pids=pids)))
            await asyncio.sleep(0.05)
        await eventually(lambda: harness.runner._launcher.running == 3 == len(harness.runner.prewarm.waiting))
        monkeypatch.setattr(limits, "WARM_SECONDS", 0.05)
        await harness.shell("true", harness.profile(limits=SandboxLimits(pids=30)))
        assert len(harness.runner.prewarm.waiting) <= 3
    finally:
        await harness.runner.close()
    assert not harness.runner._launcher.running


async def test_one_that_nobody_wants_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WARM_SECONDS", 0.3)
    harness = WarmSandboxHarness(tmp_path)
    try:
        waiting = await harness.warm()
        await eventually(lambda: not harness.runner.prewarm.waiting)
        await eventually(lambda: all(each.child.ended for each in waiting))
        assert not harness.runner._launcher.running
        assert (await harness.shell("echo cold")).stdout == b"cold\n"
    finally:
        await harness.runner.close()


async def test_none_before_the_first_call_or_where_it_is_switched_off(tmp_path: Path) -> None:
    harness = WarmSandboxHarness(tmp_path, prewarm=False)
    try:
        assert descendants(os.getpid()) == set() or harness.runner._launcher.zygote_pid is None
        for _ in range(3):
            assert (await harness.shell("echo cold")).stdout == b"cold\n"
        await asyncio.sleep(0.1)
        assert harness.runner.prewarm.waiting == () and not harness.runner._launcher.running
    finally:
        await harness.runner.close()


async def test_where_no_process_can_wait_inside_bubblewrap_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: object) -> bool:
        return False

    monkeypatch.setattr("palyra.sandbox.launch.launcher.Launcher.runs_native", never)
    harness = WarmSandboxHarness(tmp_path)
    try:
        (harness.workspace / ".env").write_text("secret")
        sandbox, ended = await harness.used("echo planted > .env; cat .env")
        assert sandbox is None and ended.stdout == b"secret"
        assert harness.runner.prewarm.waiting == ()
    finally:
        await harness.runner.close()


DAEMON = """
import asyncio, sys
from pathlib import Path
from security_test import WarmSandboxHarness

async def main():
    harness = WarmSandboxHarness(Path(sys.argv[1]))
    await harness.warm()
    print("ready", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_none_outlives_a_daemon_that_was_killed(tmp_path: Path) -> None:
    program = "import importlib.util as u, sys; s = u.spec_from_file_location('security_test', sys.argv.pop(1)); "
    program += "m = u.module_from_spec(s); sys.modules['security_test'] = m; s.loader.exec_module(m)\n" + DAEMON
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    daemon = subprocess.Popen(
        [sys.executable, "-c", program, __file__, str(tmp_path)], env=environment, stdout=subprocess.PIPE
    )
    try:
        assert daemon.stdout is not None and daemon.stdout.readline() == b"ready\n"
        # The zygote, the ready keepers with what waits under them, and two sandboxes of four processes.
        left = descendants(daemon.pid)
        assert len(left) >= 9
    finally:
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.communicate()
    eventually_sync(lambda: not any(_lives(pid) for pid in left))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def nobody_of_the_same_user_looks_in(base: Path) -> None:
    harness = WarmSandboxHarness(base)
    try:
        for each in await harness.warm():
            assert each.inside_pid is not None
            # What it was told last is carried out a moment later.
            await eventually(lambda pid=each.inside_pid: not _opens(f"/proc/{pid}/mem"))  # type: ignore[misc]
    finally:
        await harness.runner.close()


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        return False
    return True


if __name__ == "__main__":
    for make in ATTEMPTS:
        asyncio.run(attempt(make, Path(sys.argv[1]) / make.__name__))
        print("blocked:", make.__name__)
    asyncio.run(nobody_of_the_same_user_looks_in(Path(sys.argv[1]) / "looks_in"))
    print("blocked: looks in")
