"""Reads what an attempt left: processes by their name, files by their content and rights, a process's limits."""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Any, Final

MAX_COMPARED_BYTES: Final = 4096


def survivors(comm: str) -> Iterator[str]:
    """Processes by the name that the attacking program gave itself; its children have it too, also as zombies."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            text = file.read()
            if text[text.find(b"(") + 1 : text.rfind(b")")] == comm.encode():
                state = text[text.rfind(b")") + 2 :][:1].decode()
                yield f"process {name} outlived the call (state {state})"


def limits_of(pid: int) -> str:
    with open(f"/proc/{pid}/limits") as file:
        return file.read()


def touched(pid: int, limits: str) -> str:
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/status") as file:
            tracer = next((line for line in file if line.startswith("TracerPid:")), "TracerPid:\t0")
        if int(tracer.split()[1]):
            return "the host's process is being traced"
        if limits_of(pid) != limits:
            return "the limits of the host's process were changed"
    return ""


def listing(folder: str) -> Iterator[tuple[str, Any]]:
    for name in sorted(os.listdir(folder)):
        yield name, described(f"{folder}/{name}")


def described(path: str) -> Any:
    try:
        status = os.lstat(path)
        content = b""
        if stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:
                content = file.read(MAX_COMPARED_BYTES)
    except OSError:
        return None
    return status.st_mode, status.st_uid, status.st_ino, status.st_size, int(status.st_mtime), content


def attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []


def planted(workspace: str) -> Iterator[str]:
    """What would harm outside if somebody used it: devices, programs with rights, dumped memory."""
    for folder, _, files in os.walk(workspace):
        for name in files:
            mode = os.lstat(f"{folder}/{name}").st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                yield f"a device was left in the workspace: {name}"
            if stat.S_ISREG(mode) and "security.capability" in attributes(f"{folder}/{name}"):
                yield f"a file with capabilities was left in the workspace: {name}"
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                yield f"a file with mode {stat.S_IMODE(mode):04o} was left in the workspace: {name}"
            if stat.S_ISREG(mode) and (name == "core" or name.startswith("core.")):
                yield f"a core dump was left in the workspace: {name}"
