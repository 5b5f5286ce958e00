"""Walks directories by descriptor: each level is opened by name from the one above, and links are never entered."""

import os
import stat
from collections.abc import Callable, Generator

import msgspec

from palyra.errors import PalyraError
from palyra.workspace.errors import refusal_of
from palyra.workspace.limits import MAX_DIRECTORY_ENTRIES, MAX_WALK_DEPTH
from palyra.workspace.openat2 import held, open_beneath
from palyra.workspace.path import decode_name, encode_name, shown

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One name in a directory that is open while the entry is looked at."""

    directory: int
    names: tuple[str, ...]
    status: os.stat_result

    @property
    def encoded(self) -> bytes:
        return encode_name(self.names[-1])


class Shortfall:
    """What a walk left out: directories it could not read, and whether some were too large or too deep."""

    def __init__(self) -> None:
        self.unreadable = 0
        self.incomplete = False


def walk(
    directory: int,
    *,
    recursive: bool,
    shortfall: Shortfall,
    keep_going: Callable[[], None],
    enter: Callable[[tuple[str, ...]], bool] = lambda names: True,
    names: tuple[str, ...] = (),
) -> Generator[Entry, None, None]:
    """Entries in depth-first order, sorted by the bytes of their names. ``directory`` stays the caller's to close."""
    for name in _sorted_names(directory, shortfall, keep_going):
        keep_going()
        inner = (*names, name)
        try:
            status = os.stat(encode_name(name), dir_fd=directory, follow_symlinks=False)
        except OSError:
            # It went away between the reading of the directory and now.
            continue
        yield Entry(directory=directory, names=inner, status=status)
        if not (recursive and stat.S_ISDIR(status.st_mode) and enter(inner)):
            continue
        if len(inner) >= MAX_WALK_DEPTH:
            shortfall.incomplete = True
            continue
        try:
            opened = open_beneath(directory, encode_name(name), OPEN_DIRECTORY | os.O_NOFOLLOW, shown=shown(name))
        except PalyraError:
            shortfall.unreadable += 1
            continue
        with held(opened):
            yield from walk(
                opened, recursive=True, shortfall=shortfall, keep_going=keep_going, enter=enter, names=inner
            )


def _sorted_names(directory: int, shortfall: Shortfall, keep_going: Callable[[], None]) -> list[str]:
    found: list[bytes] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                keep_going()
                if len(found) == MAX_DIRECTORY_ENTRIES:
                    shortfall.incomplete = True
                    break
                found.append(os.fsencode(entry.name))
    except OSError as error:
        raise refusal_of(error, "the directory") from error
    return [decode_name(name) for name in sorted(found)]
