import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fakes.eventually import eventually
from fakes.launching import as_ordinary_user, processes_with, python, run, started
from palyra.sandbox.domain.launch_spec import NO_CGROUP, BadLaunch, CgroupEntry, LaunchFailed
from palyra.sandbox.domain.profile import Layer
from palyra.sandbox.launch import supervisor_pool
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.layers import cgroup
from palyra.sandbox.layers.cgroup import CgroupPool, Hierarchy, parse_hierarchies

V2_MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "33 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "34 30 0:31 / /mnt/with\\040space rw - cgroup cgroup rw,pids\n"
)


def test_version_2() -> None:
    found = parse_hierarchies("0::/user.slice/u.service\n", V2_MOUNT)
    assert found == (Hierarchy(version=2, directory="/sys/fs/cgroup/user.slice/u.service", controllers=frozenset()),)


def test_version_1_and_both() -> None:
    membership = "5:pids:/\n4:memory:/jobs/a\n3:cpu,cpuacct:/\n2:name=systemd:/x\n0::/\n"
    found = parse_hierarchies(membership, V1_MOUNTS)
    assert [(place.version, place.directory, set(place.controllers)) for place in found] == [
        (1, "/mnt/with space", {"pids"}),
        (1, "/sys/fs/cgroup/memory/jobs/a", {"memory"}),
        (2, "/sys/fs/cgroup/unified", set()),
    ]


def test_a_container_sees_its_own_part_only() -> None:
    mount = "29 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert parse_hierarchies("0::/docker/abc/x\n", mount)[0].directory == "/sys/fs/cgroup/x"
    # A group that is not below what is mounted cannot be reached, and one named abcd is not below abc.
    assert parse_hierarchies("0::/docker/abcd\n", mount) == ()
    assert parse_hierarchies("0::/../other\n", V2_MOUNT) == ()


def test_neither() -> None:
    assert parse_hierarchies("", "") == ()
    assert parse_hierarchies("0::/\nrubbish\n", "1 2 3\n") == ()


def controllers_of(pool: CgroupPool) -> frozenset[str]:
    return frozenset().union(*(base.controllers for base in pool._prepared()))


class Limits(msgspec.Struct, frozen=True):
    memory_bytes: int = 64 << 20
    pids: int = 20


def imitation(tmp_path: Path) -> CgroupPool:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    return CgroupPool(hierarchies=(Hierarchy(version=2, directory=str(tmp_path), controllers=frozenset()),))


def test_where_there_is_nothing_the_receipt_says_so_and_nothing_fails() -> None:
    pool = CgroupPool(hierarchies=())
    group = pool.take(Limits())
    assert group.entry == NO_CGROUP
    assert not group.limits_memory
    lines = {line.layer: line for line in group.receipt()}
    assert set(lines) == {Layer.CGROUP_MEMORY, Layer.CGROUP_PIDS}
    assert all(not line.held and "no control group hierarchy" in line.got for line in lines.values())
    group.kill()
    group.release()
    pool.close()


async def test_an_ordinary_user_without_delegation_is_told_why() -> None:
    async def body() -> tuple[bool, str, frozenset[str]]:
        pool = CgroupPool()
        group = pool.take(Limits())
        held = any(line.held for line in group.receipt())
        group.release()
        pool.close()
        return held, pool._why_not, controllers_of(pool)

    held, why, controllers = as_ordinary_user(body)
    assert held is bool(controllers)
    assert held or "Permission denied" in why or "Read-only" in why or "no control group" in why


def test_version_2_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain directory stands in for the file system, in which the kernel would make the files of a new group."""
    real, real_remove = os.mkdir, os.rmdir

    def remove(path: str) -> None:
        for file in Path(path).iterdir():
            if file.is_file():
                file.unlink()
        real_remove(path)

    def make(path: str, mode: int = 0o777) -> None:
        real(path, mode)
        for name in ("cgroup.procs", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max"):
            Path(path, name).write_text("")
        Path(path, "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
        Path(path, "cgroup.kill").write_text("")

    monkeypatch.setattr(cgroup.os, "mkdir", make)
    monkeypatch.setattr(cgroup.os, "rmdir", remove)
    monkeypatch.setattr(cgroup, "_enable", lambda directory, controllers: None)
    pool = imitation(tmp_path)
    assert controllers_of(pool) == {"memory", "pids"}
    (base,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert base.name.startswith(f"palyra-{os.getpid()}-")
    group = pool.take(Limits())
    assert group.entry == CgroupEntry(v2=f"{base}/1")
    files = {name: (base / "1" / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert files == {"memory.max": "67108864", "memory.swap.max": "0", "pids.max": "20"}
    assert [(line.layer, line.held) for line in group.receipt()] == [
        (Layer.CGROUP_MEMORY, True),
        (Layer.CGROUP_PIDS, True),
    ]
    # Counters of whoever had the group before do not count.
    assert not group.out_of_memory()
    (base / "1" / "memory.events").write_text("oom_kill 3\n")
    assert group.out_of_memory()
    group.kill()
    assert (base / "1" / "cgroup.kill").read_text() == "1"
    group.release()
    pool.close()
    assert not base.exists()


def test_a_limit_that_does_not_read_back_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_enable", lambda directory, controllers: None)
    monkeypatch.setattr(cgroup, "write", lambda directory, name, content: Path(directory, name).write_text("max"))
    group = imitation(tmp_path).take(Limits())
    assert [line.held for line in group.receipt()] == [False, False]
    assert not group.limits_memory


def test_leftovers_of_a_dead_daemon_are_removed(tmp_path: Path) -> None:
    dead = subprocess.run(["/bin/sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    left = tmp_path / f"palyra-{dead}-00ff" / "1"
    left.mkdir(parents=True)
    mine = tmp_path / f"palyra-{os.getpid()}-00ff"
    mine.mkdir()
    other = tmp_path / "palyra-mine"
    other.mkdir()
    pool = imitation(tmp_path)
    pool.take(Limits()).release()
    assert not left.parent.exists()
    assert mine.exists()
    assert other.exists()


@pytest.fixture
def pool() -> CgroupPool:
    made = CgroupPool()
    assert os.getuid() != 0 or controllers_of(made), made._why_not
    return made


def test_a_version_2_group_that_limits_nothing_is_left_out_beside_version_1(tmp_path: Path) -> None:
    for name in ("pids", "unified"):
        (tmp_path / name).mkdir()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    (tmp_path / "unified" / "cgroup.subtree_control").touch()
    first = Hierarchy(version=1, directory=str(tmp_path / "pids"), controllers=frozenset({"pids"}))
    second = Hierarchy(version=2, directory=str(tmp_path / "unified"), controllers=frozenset())
    both, alone = CgroupPool(hierarchies=(first, second)), CgroupPool(hierarchies=(second,))
    assert not both.has_version_2 and os.listdir(tmp_path / "unified") == [
        "cgroup.controllers",
        "cgroup.subtree_control",
    ]
    assert alone.has_version_2


@pytest.fixture
def unified() -> Iterator[CgroupPool]:
    """The version 2 hierarchy of this machine, if only to see where a program starts and to end it."""
    table = Path("/proc/self/mountinfo").read_text()
    assert os.getuid() != 0 or " - cgroup2 " in table
    found = [each for each in parse_hierarchies("0::/\n", table) if each.version == 2]
    made = CgroupPool(hierarchies=tuple(found))
    yield made
    made.close()


EXECUTORS = {
    "native": "",
    "python": "import palyra.sandbox.launch.supervisor.native_code as n; n.open_image = lambda: None; ",
    "native, no clone3": "import palyra.sandbox.launch.supervisor.exec_child as e; e._CLONE3 = 1 << 20; ",
    "python, no clone3": "import palyra.sandbox.launch.supervisor.native_code as n; n.open_image = lambda: None;"
    " import palyra.sandbox.launch.supervisor.exec_child as e; e._CLONE3 = 1 << 20; ",
}


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_program_starts_within_its_version_2_group_and_ends_with_it(
    executor: str, unified: CgroupPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unified.has_version_2:
        assert unified._why_not
        return
    zygote = supervisor_pool._ZYGOTE.replace("from palyra", EXECUTORS[executor] + "from palyra", 1)
    monkeypatch.setattr(supervisor_pool, "_ZYGOTE", zygote)
    script = (
        "import os, time\nprint(open('/proc/self/cgroup').read(), flush=True)\nos.fork(); os.fork()\ntime.sleep(60)"
    )
    group = unified.take(Limits())
    name = str(group.entry.v2).partition("/palyra-")[2]
    assert name and group.entry.v1 == ()
    async with Launcher(cgroups=unified) as launcher:
        async with started(launcher, python(script, cgroup=group.entry)) as (child, output):
            await eventually(lambda: len(group.processes()) == 4)
            assert f"0::/palyra-{name}\n" in output.read_text()
            assert child.pid in group.processes()
            os.kill(child.pid, signal.SIGTERM)
            ended = await child.wait()
            assert (ended.signal, ended.orphans_killed, ended.survivors) == (signal.SIGTERM, 3, 0)
            assert group.empty()
        # One without a group starts outside it, and one whose group is gone does not start.
        ended, output_text = await run(launcher, python("print(open('/proc/self/cgroup').read())"))
        assert ended.exit_code == 0 and name not in output_text
        with pytest.raises(LaunchFailed) as failed:
            await run(launcher, python("", cgroup=CgroupEntry(v2=f"{group.entry.v2}/gone")))
        assert (failed.value.details["stage"], failed.value.details["errno"]) == ("cgroup", errno.ENOENT)
    group.release()


async def test_a_launcher_without_version_2_groups_starts_nothing_in_one() -> None:
    async with Launcher() as launcher:
        with pytest.raises(BadLaunch):
            await run(launcher, python("", cgroup=CgroupEntry(v2="/sys/fs/cgroup/unified")))


async def test_memory_of_the_whole_tree_is_limited(pool: CgroupPool) -> None:
    if "memory" not in controllers_of(pool):
        assert pool._why_not
        return
    script = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(40 << 20)
        for place in range(0, len(held), 4096): held[place] = 1
        print('held', flush=True); time.sleep(60)
time.sleep(1.5)
"""
    group = pool.take(Limits())
    async with Launcher(cgroups=pool) as launcher:
        _, output = await run(launcher, python(script, cgroup=group.entry))
    assert output.count("held") < 4
    assert group.out_of_memory()
    assert {line.layer for line in group.receipt() if line.held} == {
        Layer.CGROUP_MEMORY,
        Layer.CGROUP_PIDS,
    }
    group.release()
    pool.close()


async def test_a_fork_bomb_stops_at_the_limit_for_root_too(pool: CgroupPool) -> None:
    if "pids" not in controllers_of(pool):
        assert pool._why_not
        return
    marker = f"marker-{os.getpid()}-{time.monotonic_ns()}"
    bomb = """
import os, time
while True:
    try: os.fork()
    except OSError: print('refused', flush=True); time.sleep(60)
"""
    group = pool.take(Limits())
    async with (
        Launcher(cgroups=pool) as launcher,
        started(launcher, python(bomb, marker, cgroup=group.entry)) as (
            child,
            output,
        ),
    ):
        await eventually(lambda: "refused" in output.read_text())
        assert 2 <= len(group.processes()) <= 20
        await child.kill()
        assert group.empty()
    assert processes_with(marker) == []
    group.release()
    pool.close()


async def test_kill_ends_what_never_had_a_keeper(pool: CgroupPool) -> None:
    if not controllers_of(pool):
        assert pool._why_not
        return
    group = pool.take(Limits())
    paths = [f"{directory}/cgroup.procs" for directory in group.entry.directories]
    enter = "; ".join(f"open({path!r}, 'w').write('0')" for path in paths)
    process = subprocess.Popen(["/usr/bin/python3", "-c", f"{enter}; import time; time.sleep(60)"])
    await eventually(lambda: process.pid in group.processes())
    group.kill()
    assert process.wait() == -signal.SIGKILL
    group.release()
    pool.close()


def test_groups_are_reused_and_leave_no_directory(pool: CgroupPool) -> None:
    groups = [pool.take(Limits()) for _ in range(12)]
    places = {path for group in groups for path in group.entry.directories}
    assert len(places) == sum(len(group.entry.directories) for group in groups)
    for group in groups:
        group.release()
    again = pool.take(Limits(memory_bytes=32 << 20))
    assert set(again.entry.directories) <= places
    assert all("33554432" in line.got for line in again.receipt() if line.held and line.layer is Layer.CGROUP_MEMORY)
    again.release()
    pool.close()
    assert not any(Path(path).exists() for path in places)


def test_a_group_that_was_busy_when_it_was_given_back_goes_with_a_later_one_or_in_the_end() -> None:
    pool = CgroupPool(kept=0)
    assert os.getuid() != 0 or controllers_of(pool), pool._why_not
    for later in (True, False):
        group = pool.take(Limits())
        folders = list(group.entry.directories)
        with subprocess.Popen(["sleep", "60"]) as inside:
            for folder in folders:
                Path(folder, "cgroup.procs").write_text(str(inside.pid))
            pool.give_back(group)
            assert [folder for folder in folders if os.path.exists(folder)] == folders
            inside.kill()
        until = time.monotonic() + 5
        while later and any(map(os.path.exists, folders)) and time.monotonic() < until:
            pool.take(Limits()).release()
        if not later:
            pool.close()
        assert not [folder for folder in folders if os.path.exists(folder if later else os.path.dirname(folder))]


def test_closing_waits_for_a_process_that_is_just_leaving_its_group(
    pool: CgroupPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = pool.take(Limits())
    folders = list(group.entry.directories)
    group.release()
    real, busy = os.rmdir, [OSError(errno.EBUSY, "busy")] * 3

    def leaving(path: str) -> None:
        if busy and path in folders:
            raise busy.pop()
        real(path)

    monkeypatch.setattr(os, "rmdir", leaving)
    pool.close()
    assert folders and not [folder for folder in folders if os.path.exists(os.path.dirname(folder))]
