"""What the tests of the file tools share: calling a tool, a workspace beside a secret, a program that swaps names."""

import ctypes
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.canonical import canonical_json
from palyra.errors import PalyraError
from palyra.executors.files.spec import FILE_TOOLS
from palyra.workspace.root import Workspace, open_workspace

PROTECTED = (".git/hooks", ".git/config", ".env*", ".github/workflows")
SECRET = "the outside secret"
_EXCHANGE = 2
_AT_FDCWD = -100


def call(
    workspace: Workspace, name: str, cancelled: threading.Event | None = None, /, **arguments: Any
) -> dict[str, Any]:
    result = FILE_TOOLS[name].run(arguments, workspace, cancelled or threading.Event())
    canonical_json(result)
    return result


def refused(workspace: Workspace, name: str, cancelled: threading.Event | None = None, /, **arguments: Any) -> str:
    """The code of the refusal; a call that succeeds is the attack succeeding."""
    with pytest.raises(PalyraError) as caught:
        call(workspace, name, cancelled, **arguments)
    assert SECRET not in str(caught.value.as_dict())
    return caught.value.code


def everything_refused(workspace: Workspace, path: str, codes: set[str]) -> None:
    """No tool reads or writes the file at this path."""
    assert refused(workspace, "fs.read", path=path) in codes
    assert refused(workspace, "fs.search", query="secret", path=path) in codes
    assert refused(workspace, "fs.write", path=path, content="pwned", mode="overwrite") in codes
    assert refused(workspace, "fs.write", path=path, content="pwned", mode="append", create_parents=True) in codes
    assert refused(workspace, "fs.patch", path=path, edits=[{"old": "the", "new": "pwned"}]) in codes


def leftovers(root: Path) -> list[str]:
    return [name for _, _, names in os.walk(root) for name in names if name.startswith(".palyra-")]


@contextmanager
def harness(base: Path) -> Iterator[tuple[Workspace, Path, Path]]:
    """A workspace, its root, and a directory outside with a secret anyone may read and write."""
    root, outside = base / "workspace", base / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    with open_workspace(root, PROTECTED) as workspace:
        yield workspace, root, outside
    assert (outside / "secret").read_text() == SECRET
    assert sorted(os.listdir(outside)) == ["secret"]
    assert not leftovers(root)


@contextmanager
def swapping(*pairs: tuple[Path, Path]) -> Iterator[Callable[[], int]]:
    """Another process exchanges the names of each pair, atomically and without rest; yields a count of its swaps.

    A thread would not do: the interpreter's lock makes it take turns with the code under attack.
    """
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    names = [(os.fsencode(first), os.fsencode(second)) for first, second in pairs]
    shared = mmap.mmap(-1, 16)
    child = os.fork()
    if child == 0:
        count = 0
        while shared[8] == 0:
            for first, second in names:
                exchange(_AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE)
                count += 1
            shared[:8] = struct.pack("<Q", count)
        os._exit(0)
    try:
        yield lambda: struct.unpack("<Q", shared[:8])[0]
    finally:
        shared[8] = 1
        os.waitpid(child, 0)
        shared.close()
