"""Who is alive on a state directory: the kernel's word, not a file's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.config.state_dir import DaemonRunning, HeldLock, InstanceRegistry, take_daemon_lock

HOLD = """
import sys
from pathlib import Path
from palyra.config.state_dir import InstanceRegistry
instance, lock = InstanceRegistry(Path(sys.argv[1])).enter()
print(instance, flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_is_dead_and_its_file_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "instances"
    registry = InstanceRegistry(folder)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdin is not None
    instance = process.stdout.readline().strip()
    assert registry.live() == {instance}
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()
    assert registry.live() == frozenset() and list(folder.iterdir()) == []


def test_each_life_has_its_own_name_and_leaves_when_it_ends(tmp_path: Path) -> None:
    registry = InstanceRegistry(tmp_path / "instances")
    (first, one), (second, two) = registry.enter(), registry.enter()
    assert first != second and registry.live() == {first, second}
    one.release(remove=True)
    assert registry.live() == {second}
    two.release(remove=True)
    assert registry.live() == frozenset()


def test_a_file_left_behind_is_no_life(tmp_path: Path) -> None:
    registry = InstanceRegistry(tmp_path / "instances")
    (tmp_path / "instances" / "01ARZ3NDEKTSV4RRFFQ69G5FAV").touch()
    assert registry.live() == frozenset()


def test_a_planted_link_is_neither_followed_nor_fatal(tmp_path: Path) -> None:
    registry = InstanceRegistry(tmp_path / "instances")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "instances" / "01ARZ3NDEKTSV4RRFFQ69G5FAV").symlink_to(victim)
    assert registry.live() == frozenset()
    assert victim.read_text() == "mine"


def test_lock_files_are_private_and_not_inherited(tmp_path: Path) -> None:
    lock = HeldLock.take(tmp_path / "lock")
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    assert not os.get_inheritable(lock.descriptor)
    lock.release(remove=False)
    assert (tmp_path / "lock").exists()


@pytest.mark.promise("P-journal-durable")
def test_one_daemon_on_one_state_directory(tmp_path: Path) -> None:
    held = take_daemon_lock(tmp_path / "daemon.lock")
    with pytest.raises(DaemonRunning):
        take_daemon_lock(tmp_path / "daemon.lock")
    held.release(remove=False)
    take_daemon_lock(tmp_path / "daemon.lock").release(remove=False)
