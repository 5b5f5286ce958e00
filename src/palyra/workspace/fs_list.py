"""fs.list: what a directory holds."""

import contextlib
import os
import stat
import threading
from typing import Any

from palyra.clock import MS_PER_SECOND, rfc3339
from palyra.workspace.limits import (
    DEFAULT_LIST_ENTRIES,
    MAX_LIST_ENTRIES,
    MAX_LIST_TEXT_CHARS,
    MAX_SAFE_INTEGER,
)
from palyra.workspace.openat2 import held
from palyra.workspace.path import WorkspacePath, decode_name, is_plain, shown
from palyra.workspace.root import Workspace, kind_of, refuse_cancelled
from palyra.workspace.walk import OPEN_DIRECTORY, Entry, Shortfall, walk

# File systems hold times that no calendar does; they are shown as the nearest instant whose year has four digits.
_FIRST_SECOND = -30_610_224_000
_LAST_SECOND = 253_402_300_799


def list_directory(arguments: dict[str, Any], workspace: Workspace, cancelled: threading.Event) -> dict[str, Any]:
    """Entries sorted by the bytes of their names. Links are entries of their own and never entered."""
    path = WorkspacePath.parse(arguments.get("path", "."))
    wanted = min(arguments.get("max_entries", DEFAULT_LIST_ENTRIES), MAX_LIST_ENTRIES)
    shortfall = Shortfall()
    entries: list[dict[str, Any]] = []
    room = MAX_LIST_TEXT_CHARS
    truncated = False
    with held(workspace.open(path, OPEN_DIRECTORY)) as directory:
        found = walk(
            directory,
            recursive=arguments.get("recursive", False),
            shortfall=shortfall,
            keep_going=lambda: refuse_cancelled(cancelled),
        )
        with contextlib.closing(found):
            for entry in found:
                described = _describe(entry)
                room -= len(described["name"]) + len(described.get("target", ""))
                if len(entries) == wanted or room < 0:
                    truncated = True
                    break
                entries.append(described)
    return {
        "path": path.shown(),
        "entries": entries,
        "truncated": truncated or shortfall.incomplete,
        "unreadable": shortfall.unreadable,
    }


def _describe(entry: Entry) -> dict[str, Any]:
    name = "/".join(entry.names)
    described: dict[str, Any] = {
        "name": shown(name),
        "escaped": not is_plain(name),
        "type": kind_of(entry.status.st_mode),
        "size": min(entry.status.st_size, MAX_SAFE_INTEGER),
        "mtime": _instant(entry.status),
    }
    if stat.S_ISLNK(entry.status.st_mode):
        try:
            target = os.readlink(entry.encoded, dir_fd=entry.directory)
        except OSError:
            # It is no longer a link; what it was a moment ago is still a true answer.
            return described
        described["target"] = shown(decode_name(target))
    return described


def _instant(status: os.stat_result) -> str:
    seconds, rest = divmod(status.st_mtime_ns, 1_000_000_000)
    milliseconds = rest // 1_000_000
    return rfc3339(min(max(seconds, _FIRST_SECOND), _LAST_SECOND) * MS_PER_SECOND + milliseconds)
