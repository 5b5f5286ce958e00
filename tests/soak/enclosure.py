"""What the soak is shut into, so that what is left behind at the end is exactly what it left: mounts, control groups
and a temporary folder of its own, and a first process that takes in orphans as init would."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from fakes.processes import descendants
from soak.settings import DISK_BYTES

_CLONE_NEWNS = 0x00020000
_PR_SET_CHILD_SUBREAPER = 36
_CGROUPS = Path("/sys/fs/cgroup")
# At a disk that is being written, before it can be made just as large as what is on it.
MOST_LOOKS = 20
MORE_EACH_LOOK = 65_536


def become_orphanage() -> int:
    """Splits this process in two and returns in the second. The first, whose id is returned, buries whatever loses its
    parent below it, and ends as the second does."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    first = os.getpid()
    second = os.fork()
    if second == 0:
        return first
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda which, _frame: os.kill(second, which))
    while True:
        pid, status = os.wait()
        if pid == second:
            # Nothing outlives a soak that died itself.
            for left in descendants(first):
                with suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


class Enclosure:
    """``root`` has a short path: sockets below it have room for theirs."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.root = Path(tempfile.mkdtemp(prefix="soak-"))
        self.disk = self.root / "disk"
        self.temporary = self.root / "tmp"
        self.disk.mkdir()
        self.temporary.mkdir()
        self.groups: list[Path] = []
        self._own_mounts()
        self._own_groups()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(self.disk)], check=True
        )
        os.environ["TMPDIR"] = str(self.temporary)
        self.mounts = self.mounted()

    def _own_mounts(self) -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)

    def _own_groups(self) -> None:
        """Below those that this process is in: Palyra makes its groups beneath its own."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            where = _CGROUPS if (_CGROUPS / "cgroup.controllers").exists() else _CGROUPS / (names or "unified")
            if names not in ("memory", "pids", "cpu", "") or not where.is_dir():
                continue
            group = where / path.lstrip("/") / self.root.name
            with suppress(OSError):
                group.mkdir()
                self.groups.append(group)
                (group / "cgroup.procs").write_text(str(os.getpid()))

    def mounted(self) -> set[str]:
        return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}

    def left_groups(self) -> list[str]:
        return [str(path) for group in self.groups for path in sorted(group.rglob("*")) if path.is_dir()]

    def fill_disk(self, spare: int) -> None:
        """Hardly more than ``spare`` bytes are left from now on. A disk that has grown since it was looked at cannot be
        made so small: it is looked at again, and given a little for what comes meanwhile."""
        for look in range(MOST_LOOKS):
            with suppress(subprocess.CalledProcessError):
                self._resize(self._used() + spare + look * MORE_EACH_LOOK)
                return
        raise OSError(f"{self.disk} grows too quickly to be filled")

    def _used(self) -> int:
        facts = os.statvfs(self.disk)
        return (facts.f_blocks - facts.f_bfree) * facts.f_frsize

    def empty_disk(self) -> None:
        self._resize(DISK_BYTES)

    def _resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.disk)], check=True, capture_output=True)

    def close(self, *, keep: bool) -> None:
        for group in self.groups:
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(str(os.getpid()))
            for path in sorted(group.rglob("*"), reverse=True):
                if path.is_dir():
                    with suppress(OSError):
                        path.rmdir()
            _removed(group)
        if keep:
            shutil.copytree(self.disk, self.root / "kept", ignore=_no_special_files, dirs_exist_ok=True)
            print(f"kept in {self.root}", file=sys.stderr)
        subprocess.run(["umount", "-l", str(self.disk)], check=False)
        if not keep:
            shutil.rmtree(self.root, ignore_errors=True)


def _removed(group: Path) -> None:
    """The kernel may take a moment to see that a group is empty."""
    for _ in range(50):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.1)


def _no_special_files(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not (Path(folder, name).is_file() or Path(folder, name).is_dir())}
