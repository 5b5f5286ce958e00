import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from fakes.eventually import eventually
from fakes.launching import alive, python, run, started
from palyra.sandbox.launch import supervisor_pool
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.launch.supervisor import wire


def start_zygote() -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        supervisor_pool._ZYGOTE,
        supervisor_pool._PACKAGE_ROOT,
        str(theirs.fileno()),
        "0",
    ]
    with theirs:
        return ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),), start_new_session=True)


def test_a_keeper_greets_and_ends_with_its_daemon() -> None:
    control, zygote = start_zygote()
    with control:
        control.send(wire.WANT.pack(wire.WANT_TAG, 2))
        for _ in range(2):
            message, descriptors, _, _ = socket.recv_fds(control, 100, 2)
            tag, _supervisor = wire.MADE.unpack(message)
            assert tag == wire.MADE_TAG
            with socket.socket(fileno=descriptors[0]) as end, socket.socket(fileno=descriptors[1]):
                hello = wire.HELLO.unpack(end.recv(100))
                assert hello[:2] == (wire.HELLO_TAG, wire.VERSION)
    assert zygote.wait(20) == 0


async def test_orphans_that_end_by_themselves_are_collected_while_the_program_runs() -> None:
    """Otherwise they would count against the limit of processes for as long as the program runs."""
    script = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.01)
        os._exit(0)
    os.wait()
print('made', flush=True); time.sleep(60)
"""
    async with Launcher() as launcher, started(launcher, python(script)) as (child, output):
        await eventually(lambda: "made" in output.read_text())
        supervisor = int(Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
        await eventually(lambda: children.read_text().split() == [str(child.pid)])


async def test_keepers_have_sessions_of_their_own() -> None:
    async with Launcher() as launcher:
        first, second = [await launcher._pool.take() for _ in range(2)]
        sessions = {os.getsid(supervisor.pid) for supervisor in (first, second)} | {os.getsid(0)}
        assert len(sessions) == 3
        first.close()
        second.close()


async def test_the_terminals_interrupt_does_not_reach_programs() -> None:
    async with Launcher() as launcher:
        assert launcher.zygote_pid is not None
        assert os.getpgid(launcher.zygote_pid) != os.getpgrp()
        ended, output = await run(launcher, python("import os; print(os.getpgrp() == os.getpid())"))
        assert (ended.exit_code, output) == (0, "True\n")
        child = asyncio.ensure_future(run(launcher, python("import os, signal; os.kill(0, signal.SIGTERM)")))
        assert (await child)[0].signal == signal.SIGTERM


async def test_a_program_ends_with_its_status_and_everything_that_it_left_behind() -> None:
    async with Launcher() as launcher:
        ended, output = await run(launcher, python("import sys; print('here'); sys.exit(7)"))
        assert (ended.exit_code, ended.signal, output, ended.survivors) == (7, None, "here\n", 0)
        ended, _ = await run(launcher, python("import os, signal; os.kill(os.getpid(), signal.SIGUSR1)"))
        assert (ended.exit_code, ended.signal) == (None, signal.SIGUSR1)
        left = "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(60)\nos._exit(0)"
        ended, _ = await run(launcher, python(left))
        assert (ended.exit_code, ended.orphans_killed, ended.survivors) == (0, 1, 0)
        tree = "import os, time\nprint(os.getpid(), flush=True)\nfor _ in range(5):\n    os.fork()\ntime.sleep(60)"
        async with started(launcher, python(tree)) as (child, written):
            await eventually(lambda: written.read_text() != "")
            ended = await child.kill()
            assert ended.signal == signal.SIGKILL and ended.survivors == 0 and not alive(child.pid)
