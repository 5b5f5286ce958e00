import asyncio
import errno
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from palyra.sandbox.domain.launch_spec import LauncherGone, LaunchFailed
from palyra.sandbox.launch import supervisor_pool
from palyra.sandbox.launch.supervisor_pool import SupervisorPool


def pool(python: str = "/usr/bin/python3") -> SupervisorPool:
    return SupervisorPool(python=python, on_swept=lambda pid: None, on_gone=lambda: None)


async def test_many_who_wait_all_get_one() -> None:
    supervisors = pool()
    taken = await asyncio.gather(*(supervisors.take() for _ in range(20)))
    assert len({supervisor.pid for supervisor in taken}) == 20
    for supervisor in taken:
        supervisor.close()
    await supervisors.close()


async def test_a_zygote_that_cannot_be_started_is_said_so() -> None:
    supervisors = pool("/nonexistent/python")
    with pytest.raises(LauncherGone):
        await supervisors.start()
    await supervisors.close()
    with pytest.raises(LauncherGone):
        await supervisors.take()


async def test_an_interpreter_that_ends_at_once_is_an_error_not_a_wait() -> None:
    supervisors = pool("/bin/true")
    with pytest.raises(LauncherGone):
        await supervisors.take()
    await supervisors.close()


async def test_a_zygote_that_closes_its_socket_and_stays_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_pool, "STOP_SECONDS", 0.3)
    stays = tmp_path / "python"
    stays.write_text('#!/bin/bash\nfor last; do :; done && eval "exec $last>&-" && exec sleep 60\n')
    stays.chmod(0o755)
    supervisors = pool(str(stays))
    await supervisors.start()
    pid = supervisors.zygote_pid
    with pytest.raises(LauncherGone):
        await supervisors.take()
    # Who waited for a supervisor is told before the process has ended, which it does only when it is killed.
    assert pid is not None and Path(f"/proc/{pid}").exists()
    await supervisors.close()
    assert not Path(f"/proc/{pid}").exists()


async def test_a_supervisor_whose_sockets_found_no_room_is_refused_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervisors = pool()
    await supervisors.start()
    await eventually(lambda: supervisors.ready)
    pid, received = supervisors.zygote_pid, socket.recv_fds

    def full(*arguments: Any) -> Any:
        message, descriptors, flags, address = received(*arguments)
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        return message, descriptors[:1], flags | socket.MSG_CTRUNC, address

    taken = [await supervisors.take()]
    with monkeypatch.context() as patched:
        patched.setattr(socket, "recv_fds", full)
        with pytest.raises(LaunchFailed, match=os.strerror(errno.EMFILE)):
            await supervisors.take()
    taken.append(await supervisors.take())
    assert supervisors.zygote_pid == pid and all(supervisor.waits() for supervisor in taken)
    for supervisor in taken:
        supervisor.close()
    await supervisors.close()


async def test_closing_while_it_starts_leaves_nothing() -> None:
    supervisors = pool()
    starting = asyncio.create_task(supervisors.start())
    await asyncio.sleep(0)
    await supervisors.close()
    await starting
    assert (supervisors.alive, supervisors.zygote_pid, len(supervisors.ready)) == (False, None, 0)


async def test_a_start_that_is_cancelled_leaves_nothing_and_the_next_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisors = pool()
    made: list[subprocess.Popen[bytes]] = []
    start = supervisors._start_zygote

    def noted(control: int) -> "subprocess.Popen[bytes]":
        made.append(start(control))
        return made[-1]

    monkeypatch.setattr(supervisors, "_start_zygote", noted)
    starting = asyncio.create_task(supervisors.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not supervisors.alive
    assert [zygote.returncode for zygote in made] == [0]
    (await supervisors.take()).close()
    await supervisors.close()
