"""Programs that try to outlive their call, or to end their supervisor. Each as the user of the test and as nobody."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.launching import alive, as_ordinary_user, processes_with, python, run, started
from palyra.sandbox.domain.launch_spec import LaunchSpec, SupervisorLost, build_tier_b_rlimits
from palyra.sandbox.launch.launcher import Launcher

pytestmark = pytest.mark.promise("P-sandbox-ends")

Body = Callable[[], Awaitable[Any]]


@pytest.fixture(params=["as the test's user", "as nobody"])
def perform(request: pytest.FixtureRequest) -> Callable[[Body], Any]:
    async def called(body: Body) -> Any:
        return await body()

    if request.param == "as nobody":
        return as_ordinary_user
    return lambda body: asyncio.run(called(body))


HIDING = {
    "new session": "os.setsid()",
    "double fork": "os.setsid(); os.fork() and os._exit(0)",
    "deaf to signals": "[signal.signal(n, signal.SIG_IGN) for n in range(1, 32) if n not in (9, 19)]",
    "stopped": "os.setsid(); os.kill(os.getpid(), signal.SIGSTOP)",
    "its own reaper": "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.fork() and time.sleep(60)",
    "no death signal": "ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)",
    "process groups": "os.setpgid(0, 0); os.fork(); os.setpgid(0, 0)",
}

HIDE = """
import ctypes, os, signal, sys, time
hiding = sys.argv[2]
ready = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(ready[1], b'x')
        exec(hiding)
        time.sleep(60)
    exec(hiding)
    time.sleep(60)
os.read(ready[0], 1)
if sys.argv[3] == 'wait':
    print('ready', flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING.keys())
@pytest.mark.parametrize("end", ["exit", "kill", "supervisor killed"])
def test_no_descendant_outlives_the_call(perform: Callable[[Body], Any], hiding: str, end: str) -> None:
    marker = f"marker-{os.getpid()}-{time.monotonic_ns()}"

    async def body() -> list[int]:
        async with Launcher() as launcher:
            if end == "exit":
                ended, output = await run(launcher, python(HIDE, marker, hiding, "exit"))
                assert ended.exit_code == 0, output
                assert ended.orphans_killed >= 1
                assert ended.survivors == 0
                return processes_with(marker)
            async with started(launcher, python(HIDE, marker, hiding, "wait")) as (child, output):
                await eventually(lambda: "ready" in output.read_text())
                if end == "kill":
                    await child.kill()
                    return processes_with(marker)
                supervisor = int(Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
                os.kill(supervisor, signal.SIGKILL)
                with pytest.raises(SupervisorLost):
                    await child.wait()
                return processes_with(marker)

    assert perform(body) == []


def test_a_process_that_forks_and_dies_all_the_time_is_caught(perform: Callable[[Body], Any]) -> None:
    """Its number changes faster than it can be read, in its own session each time."""
    marker = f"marker-{os.getpid()}-{time.monotonic_ns()}"
    comet = "import os\nfor _ in range(200_000):\n    if os.fork(): os._exit(0)\n    os.setsid()"

    async def body() -> list[int]:
        async with Launcher() as launcher:
            async with asyncio.timeout(60):
                await run(launcher, python(comet, marker))
            return processes_with(marker)

    assert perform(body) == []


def test_a_fork_bomb_is_bounded_and_ends(perform: Callable[[Body], Any]) -> None:
    """RLIMIT_NPROC bounds it for an ordinary user. It does not bind root, for whom the bomb here has an end."""
    marker = f"marker-{os.getpid()}-{time.monotonic_ns()}"
    bomb = """
import os, sys, time
made = 0
try:
    for _ in range(400):
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except BlockingIOError:
    print('refused after', made, flush=True)
else:
    print('made', made, flush=True)
"""

    async def body() -> tuple[str, list[int], int]:
        async with Launcher() as launcher:
            limits = build_tier_b_rlimits(
                cpu_seconds=30,
                memory_bytes=None,
                pids=40,
                open_files=64,
                file_bytes=1 << 20,
                tasks_of_user=launcher.tasks_of_user(),
            )
            _, output = await run(launcher, python(bomb, marker, rlimits=limits))
            return output, processes_with(marker), os.getuid()

    output, left, uid = perform(body)
    assert left == []
    if uid != 0:
        assert output.startswith("refused after")
        assert int(output.split()[-1]) <= 60


def test_a_recursive_fork_bomb_is_killed(perform: Callable[[Body], Any]) -> None:
    marker = f"marker-{os.getpid()}-{time.monotonic_ns()}"
    bomb = "import os, time\nfor _ in range(7):\n    os.fork() or os.getpid() % 3 or os.setsid()\ntime.sleep(60)"

    async def body() -> list[int]:
        async with Launcher() as launcher, started(launcher, python(bomb, marker)) as (child, _):
            await eventually(lambda: len(processes_with(marker)) > 30)
            await child.kill()
            return processes_with(marker)

    assert perform(body) == []


DAEMON = """
import asyncio, os, sys
from palyra.sandbox.domain.launch_spec import LaunchSpec
from palyra.sandbox.launch.launcher import Launcher

async def main():
    launcher = Launcher()
    await launcher.start()
    null = os.open('/dev/null', os.O_RDWR)
    hide = "import os, time; os.fork() == 0 and (os.setsid(), os.fork()); time.sleep(60)"
    spec = LaunchSpec(argv=(b'/usr/bin/python3', b'-I', b'-S', b'-c', hide.encode(), sys.argv[1].encode()))
    for _ in range(3):
        child = await launcher.launch(spec, stdin=null, stdout=null, stderr=null)
    print('started', launcher.zygote_pid, child.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("victim", ["daemon", "zygote"])
async def test_kill_minus_nine_of_a_parent_leaves_nothing(victim: str) -> None:
    marker = f"marker-{os.getpid()}-{time.monotonic_ns()}"
    daemon = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DAEMON), marker], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert daemon.stdout is not None
        line = await asyncio.to_thread(daemon.stdout.readline)
        zygote = int(line.split()[1])
        await eventually(lambda: len(processes_with(marker)) >= 3 * 3 + 1)
        supervisors = [int(word) for word in Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()]
        assert len(supervisors) >= 3
        os.kill(daemon.pid if victim == "daemon" else zygote, signal.SIGKILL)
        await eventually(lambda: [pid for pid in processes_with(marker) if pid != daemon.pid] == [])
        await eventually(lambda: not any(alive(pid) for pid in (zygote, *supervisors)))
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()


def test_supervisors_cannot_be_read_or_traced_by_a_program_of_the_same_user() -> None:
    script = """
import os
parent = os.getppid()
for name in ('environ', 'maps', 'mem', 'fd/0', 'cwd'):
    path = f'/proc/{parent}/{name}'
    try:
        os.readlink(path) if name in ('fd/0', 'cwd') else open(path, 'rb').read(1)
        print('READ', name)
    except OSError as error:
        print('refused', name, error.errno)
"""

    async def body() -> str:
        async with Launcher() as launcher:
            _, output = await run(launcher, python(script))
            return output

    output = as_ordinary_user(body)
    assert "READ" not in output
    assert output.count("refused") == 5


async def test_descriptors_of_other_programs_are_never_seen() -> None:
    """A hundred launches with descriptors of their own, at the same time: each sees its own and nothing else."""
    script = "import os; print(os.read(5, 99).decode(), len(os.listdir('/proc/self/fd')))"
    async with Launcher() as launcher:
        specs = [python(script, data_fds=((5, b"content %d" % number),)) for number in range(100)]
        outputs = await asyncio.gather(*(run(launcher, spec) for spec in specs))
    assert [output for _, output in outputs] == [f"content {number} 5\n" for number in range(100)]


async def test_capabilities_are_given_up_for_good() -> None:
    spec = LaunchSpec(argv=(b"/bin/grep", b"Cap", b"/proc/self/status"), drop_capabilities=True)
    async with Launcher() as launcher:
        _, output = await run(launcher, spec)
    hold = {line.split()[0]: int(line.split()[1], 16) for line in output.splitlines()}
    assert hold["CapPrm:"] == hold["CapEff:"] == hold["CapInh:"] == hold["CapAmb:"] == 0
    if os.getuid() == 0:
        assert hold["CapBnd:"] == 0
