import asyncio
import errno
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.eventually import eventually
from fakes.launching import alive
from palyra.sandbox.domain.launch_spec import LauncherGone, LaunchFailed, LaunchSpec
from palyra.sandbox.domain.profile import SandboxLimits
from palyra.sandbox.launch import supervisor_pool
from palyra.sandbox.launch.start_plan import Preparation
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.launch.supervisor_pool import KeeperPool
from palyra.sandbox.layers.cgroup import Hierarchy
from palyra.sandbox.layers.cgroup_pool import CgroupPool

PLAIN = LaunchSpec(argv=(b"/bin/true",))
# Allows everything: SECCOMP_RET_ALLOW.
ALLOW = bytes.fromhex("060000000000ff7f")
FILTERED = LaunchSpec(argv=(b"/bin/true",), seccomp=ALLOW)


def pool(python: str = "/usr/bin/python3") -> KeeperPool:
    return KeeperPool(ready=4, python=python, on_swept=lambda pid: None, on_gone=lambda: None)


async def test_half_of_the_ready_keepers_stay_without_a_filter() -> None:
    keepers = pool()
    keepers.usual = Preparation(seccomp=ALLOW)
    await keepers.start()
    await eventually(lambda: len(keepers.ready) == 4)
    assert sorted(keeper.prepared.seccomp is None for keeper in keepers.ready) == [False, False, True, True]
    first = await keepers.take(FILTERED)
    assert first.prepared.seccomp == ALLOW
    second = await keepers.take(PLAIN)
    assert second.prepared.seccomp is None
    first.close()
    second.close()
    await keepers.close()


async def test_a_program_without_a_filter_never_gets_a_keeper_with_one() -> None:
    keepers = pool()
    keepers.usual = Preparation(seccomp=ALLOW)
    await keepers.start()
    await eventually(lambda: len(keepers.ready) == 4)
    taken = [await keepers.take(PLAIN) for _ in range(6)]
    assert all(keeper.prepared.serves(PLAIN) for keeper in taken)
    for keeper in taken:
        keeper.close()
    await keepers.close()


async def test_many_who_wait_all_get_one() -> None:
    keepers = pool()
    taken = await asyncio.gather(*(keepers.take(PLAIN) for _ in range(20)))
    assert len({keeper.pid for keeper in taken}) == 20
    for keeper in taken:
        keeper.close()
    await keepers.close()


async def test_a_zygote_that_cannot_be_started_is_said_so() -> None:
    keepers = pool("/nonexistent/python")
    with pytest.raises(LauncherGone):
        await keepers.start()
    await keepers.close()
    with pytest.raises(LauncherGone):
        await keepers.take(PLAIN)


async def test_an_interpreter_that_ends_at_once_is_an_error_not_a_wait() -> None:
    keepers = pool("/bin/true")
    with pytest.raises(LauncherGone):
        await keepers.take(PLAIN)
    await keepers.close()


async def test_a_zygote_that_closes_its_socket_and_stays_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_pool, "STOP_SECONDS", 0.3)
    stays = tmp_path / "python"
    stays.write_text('#!/bin/bash\nfor last; do :; done && eval "exec $last>&-" && exec sleep 60\n')
    stays.chmod(0o755)
    keepers = pool(str(stays))
    await keepers.start()
    pid = keepers.zygote_pid
    with pytest.raises(LauncherGone):
        await keepers.take(PLAIN)
    # Who waited for a keeper is told before the process has ended, which it does only when it is killed.
    assert pid is not None and Path(f"/proc/{pid}").exists()
    await keepers.close()
    assert not Path(f"/proc/{pid}").exists()


async def test_a_keeper_whose_sockets_found_no_room_is_refused_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keepers = pool()
    await keepers.start()
    await eventually(lambda: len(keepers.ready) == 4)
    pid, received = keepers.zygote_pid, socket.recv_fds

    def full(*arguments: Any) -> Any:
        message, descriptors, flags, address = received(*arguments)
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        return message, descriptors[:1], flags | socket.MSG_CTRUNC, address

    taken = [await keepers.take(PLAIN) for _ in range(4)]
    with monkeypatch.context() as patched:
        patched.setattr(socket, "recv_fds", full)
        with pytest.raises(LaunchFailed, match=os.strerror(errno.EMFILE)):
            await keepers.take(PLAIN)
    taken.append(await keepers.take(PLAIN))
    assert keepers.zygote_pid == pid and all(keeper.waits() for keeper in taken)
    for keeper in taken:
        keeper.close()
    await keepers.close()


def imitated_groups(tmp_path: Path) -> CgroupPool:
    """Two groups in directories that imitate them: the files that are written must be there."""
    (tmp_path / "cgroup.controllers").write_text("")
    (tmp_path / "cgroup.subtree_control").write_text("")
    groups = CgroupPool(hierarchies=(Hierarchy(version=2, directory=str(tmp_path), controllers=frozenset()),))
    for procs in (groups.man(filtered=False), groups.man(filtered=False)):
        for name in ("cgroup.procs", "cgroup.kill", "pids.max"):
            Path(procs[0]).with_name(name).touch()
        groups.unman(procs)
    return groups


def grouped(groups: CgroupPool) -> KeeperPool:
    keepers = KeeperPool(
        ready=2, python="/usr/bin/python3", on_swept=lambda pid: None, on_gone=lambda: None, cgroups=groups
    )
    keepers.usually_grouped = True
    return keepers


async def test_a_keeper_that_is_in_the_group_already_is_taken(tmp_path: Path) -> None:
    groups = imitated_groups(tmp_path)
    keepers = grouped(groups)
    await keepers.start()
    await eventually(lambda: len(keepers.ready) == 2)
    wanted = groups.take(SandboxLimits())
    keeper = await keepers.take(msgspec.structs.replace(PLAIN, cgroup_procs=wanted.procs))
    assert keeper.prepared.cgroup_procs == wanted.procs
    keeper.close()
    other = await keepers.take(PLAIN)
    # Its group is free again, for anybody.
    assert groups.take(SandboxLimits()).procs == other.prepared.cgroup_procs != wanted.procs
    other.close()
    await keepers.close()


async def test_a_keeper_knows_which_groups_end_with_it_before_it_is_needed(tmp_path: Path) -> None:
    keepers = grouped(imitated_groups(tmp_path))
    await keepers.start()
    await eventually(lambda: len(keepers.ready) == 2)
    keeper = keepers.ready[0]
    assert keeper.groups == keeper.prepared.cgroup_procs != ()
    killing = Path(keeper.groups[0]).with_name("cgroup.kill")
    keeper.tell(wire.KILL_TAG)
    await eventually(lambda: killing.read_text() == "1")
    await keepers.close()


async def test_a_keeper_that_is_let_go_ends_nothing_in_the_groups_that_others_get(tmp_path: Path) -> None:
    groups = imitated_groups(tmp_path)
    keepers = grouped(groups)
    await keepers.start()
    await eventually(lambda: len(keepers.ready) == 2)
    going = list(keepers.ready)
    # As the worst comes: they are stopped until somebody else has their groups.
    for keeper in going:
        os.kill(keeper.pid, signal.SIGSTOP)
        keepers.ready.remove(keeper)
        keepers._let_go(keeper)
    lent = {groups.take(SandboxLimits()).procs for _ in going}
    assert lent == {keeper.prepared.cgroup_procs for keeper in going}
    for keeper in going:
        os.kill(keeper.pid, signal.SIGCONT)
    await eventually(lambda: not any(alive(keeper.pid) for keeper in going))
    written = [Path(procs[0]).with_name(name).read_text() for procs in lent for name in ("cgroup.kill", "pids.max")]
    assert written == [""] * 4
    await keepers.close()


async def test_groups_of_keepers_whose_zygote_is_gone_are_lent_to_nobody(tmp_path: Path) -> None:
    groups = imitated_groups(tmp_path)
    keepers = grouped(groups)
    await keepers.start()
    await eventually(lambda: len(keepers.ready) == 2)
    entered = {keeper.prepared.cgroup_procs for keeper in keepers.ready}
    assert keepers.zygote_pid is not None
    os.kill(keepers.zygote_pid, signal.SIGKILL)
    await eventually(lambda: not keepers.alive)
    assert not entered & {groups.take(SandboxLimits()).procs for _ in range(4)}
    await keepers.close()


async def test_closing_while_it_starts_leaves_nothing() -> None:
    keepers = pool()
    starting = asyncio.create_task(keepers.start())
    await asyncio.sleep(0)
    await keepers.close()
    await starting
    assert (keepers.alive, keepers.zygote_pid, len(keepers.ready)) == (False, None, 0)


async def test_a_start_that_is_cancelled_leaves_nothing_and_the_next_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    keepers = pool()
    made: list[subprocess.Popen[bytes]] = []
    start = keepers._start_zygote

    def noted(control: int) -> "subprocess.Popen[bytes]":
        made.append(start(control))
        return made[-1]

    monkeypatch.setattr(keepers, "_start_zygote", noted)
    starting = asyncio.create_task(keepers.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not keepers.alive
    assert [zygote.returncode for zygote in made] == [0]
    (await keepers.take(PLAIN)).close()
    await keepers.close()
