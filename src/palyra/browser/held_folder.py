"""A folder opened as it is: a link in its place is refused.

Except one kind: the folders of a running browser are known by descriptors of this process (`/proc/<pid>/fd/<n>`), which
lead nowhere but to what was opened before.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DESCRIPTOR: Final = re.compile(r"/proc/([1-9][0-9]*)/fd/(?:0|[1-9][0-9]*)")


@contextmanager
def opened_folder(path: Path | bytes, beneath: int | None = None) -> Iterator[int]:
    """Its descriptor, for as long as the block runs."""
    descriptor = os.open(_named(path), _DIRECTORY, dir_fd=beneath)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _named(path: Path | bytes) -> str | bytes:
    if isinstance(path, bytes):
        return path
    held = _DESCRIPTOR.fullmatch(str(path))
    # The dot is the last name then, and what stands before the last name is followed.
    return f"{path}/." if held and int(held[1]) == os.getpid() else str(path)
