"""Removes what a program left in its private folder, however deep it nested it.

The usual way goes down level by level and holds each one open; a program can nest deeper than any process can follow.
Here every directory is first moved up to the top, where it is emptied: nothing is ever more than two levels down.
"""

import os
import stat
from contextlib import suppress

from palyra.sandbox.descent import DIRECTORY
from palyra.workspace.openat2 import held


def remove_tree(path: str) -> None:
    """For when nothing of the program runs any more. What cannot be removed stays, as with ``ignore_errors``."""
    with suppress(OSError), held(os.open(path, DIRECTORY)) as top:
        moved = 0
        while names := os.listdir(top):
            removed = 0
            for name in names:
                with suppress(OSError):
                    moved += _remove(top, name, moved)
                    removed += 1
            if not removed:
                return
        os.rmdir(path)


def _remove(top: int, name: str, number: int) -> int:
    """Removes one entry of the top directory. Returns how many directories it moved there."""
    if not _is_directory(top, name):
        os.unlink(name, dir_fd=top)
        return 0
    moved = 0
    with held(_opened(top, name)) as directory:
        for inner in os.listdir(directory):
            if _is_directory(directory, inner):
                # Moving a directory changes its entry for the one above, which its own mode must allow.
                os.close(_opened(directory, inner))
                os.rename(inner, _free_name(top, number + moved), src_dir_fd=directory, dst_dir_fd=top)
                moved += 1
            else:
                os.unlink(inner, dir_fd=directory)
    os.rmdir(name, dir_fd=top)
    return moved


def _free_name(top: int, number: int) -> str:
    while True:
        name = f"moved-{number}"
        try:
            os.stat(name, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            return name
        number += 1


def _is_directory(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _opened(parent: int, name: str) -> int:
    """Opens a directory of ours, and gives us back the rights to it that its program may have taken."""
    with held(os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)) as place:
        if os.fstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU)
        return os.open(b".", DIRECTORY, dir_fd=place)
