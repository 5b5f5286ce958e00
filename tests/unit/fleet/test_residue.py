"""The second look: real files, real processes, and a table of mounts."""

import subprocess
import sys
from pathlib import Path

from palyra.fleet.agent.scratch import look

LEASE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER = "01ARZ3NDEKTSV4RRFFQ69G5FAW"


def test_nothing_left_is_seen_as_nothing(tmp_path: Path) -> None:
    found = look(tmp_path / LEASE, LEASE)
    assert found == (0, 0, 0) and found.clean


def test_files_that_stay_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / LEASE
    (folder / "workspace").mkdir(parents=True)
    (folder / "workspace/a").write_bytes(b"")
    (folder / "workspace/link").symlink_to("/nowhere")
    assert look(folder, LEASE).entries == 4
    dangling = tmp_path / "x" / LEASE
    dangling.parent.mkdir()
    dangling.symlink_to("/nowhere")
    assert look(dangling, LEASE).entries == 1


def test_a_process_that_still_works_in_the_folder_is_seen_also_when_the_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / LEASE / "workspace"
    folder.mkdir(parents=True)
    program = [sys.executable, "-c", "print(flush=True); import sys; sys.stdin.read()"]
    with subprocess.Popen(program, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert look(tmp_path / LEASE, LEASE).processes == 1
        assert look(tmp_path / OTHER, OTHER).processes == 0
        folder.rmdir()
        assert look(tmp_path / LEASE, LEASE).processes == 1
        process.stdin.close()
        process.wait(60)
    assert look(tmp_path / LEASE, LEASE).processes == 0


def test_a_process_in_whose_view_the_folder_is_mounted_is_seen(tmp_path: Path) -> None:
    """As /proc shows a sandbox: another view of the mounts, with the workspace bound into it."""
    proc = tmp_path / "proc"
    for name, view in (("self", "mnt:[1]"), ("11", "mnt:[1]"), ("12", "mnt:[2]"), ("13", "mnt:[2]"), ("14", "mnt:[3]")):
        (proc / name / "ns").mkdir(parents=True)
        (proc / name / "ns" / "mnt").symlink_to(view)
        (proc / name / "cwd").symlink_to("/")
        (proc / name / "root").symlink_to("/")
    plain = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    (proc / "self" / "mountinfo").write_text(plain)
    (proc / "11" / "mountinfo").write_text(plain)
    bound = plain + f"30 22 8:1 /srv/scratch/{LEASE}/workspace//deleted /workspace rw - ext4 /dev/sda1 rw\n"
    for name in ("12", "13"):
        (proc / name / "mountinfo").write_text(bound)
    (proc / "14" / "mountinfo").write_text(plain + f"31 22 8:1 /srv/{LEASE}-not /workspace rw - ext4 x rw\n")
    assert look(tmp_path / LEASE, LEASE, proc=proc) == (0, 2, 0)
    (proc / "self" / "mountinfo").write_text(plain + f"40 22 0:5 / /srv/scratch/{LEASE}/workspace rw - tmpfs t rw\n")
    assert look(tmp_path / LEASE, LEASE, proc=proc).mounts == 1
