"""What of a state directory goes into a backup."""

import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from palyra.errors import Tampered

DATABASE: Final = "palyra.db"
CHECKPOINT: Final = "checkpoint.json"
SIGNING_KEY: Final = "signing.key"
PUBLIC_KEY: Final = "signing.pub"

# Of a name in the archive; the deepest name of ours has six parts.
MAX_NAME_CHARS: Final = 512
MAX_NAME_PARTS: Final = 16

# Made anew by whoever needs them, or true of one life of one process only.
_PASSING_FOLDERS: Final = frozenset({"instances", "sandbox", "scratch", "compiled", "cache", "sockets"})
_PASSING_NAMES: Final = frozenset({"daemon.json", "daemon.lock", "palyra.ballast"})
_PASSING_ENDINGS: Final = ("-wal", "-shm", "-journal", ".sock", ".lock", ".new")
# Files of agents, as large as they make them: the owner's to keep, as the rest of the machine's files are.
_WORKSPACE: Final = "workspace"
# What this machine is to another daemon: keys and certificates.
_DEVICE_FOLDERS: Final = frozenset({"node", "worker", "egress", "local-workers"})
_KEY_ENDINGS: Final = (".key", ".token", ".pem")
_PART: Final = re.compile(r"[A-Za-z0-9._@:+=,~ -]{1,255}")


class Part(StrEnum):
    """``STATE`` is always taken, ``KEY`` unless it is made without keys, ``PASSING`` and ``WORKSPACE`` never."""

    STATE = "state"
    KEY = "key"
    PASSING = "passing"
    WORKSPACE = "workspace"


class BadEntry(Tampered):
    code = "backup.bad_entry"
    hint = "this is not an archive that Palyra made; take it from where you keep backups again"


def part_of(name: str) -> Part:
    """What the file with this name, relative to the state directory, is to a backup."""
    path = PurePosixPath(name)
    top, last = path.parts[0], path.name
    if top == _WORKSPACE:
        return Part.WORKSPACE
    if last in _PASSING_NAMES or last.endswith(_PASSING_ENDINGS) or _PASSING_FOLDERS & set(path.parts[:-1]):
        return Part.PASSING
    if top in _DEVICE_FOLDERS or (last.endswith(_KEY_ENDINGS) and last != PUBLIC_KEY):
        return Part.KEY
    return Part.STATE


def checked_name(name: str) -> str:
    """The name, if it can only mean a file below the directory it is joined to."""
    parts = name.split("/")
    if (
        not 1 <= len(name) <= MAX_NAME_CHARS
        or len(parts) > MAX_NAME_PARTS
        or any(part in (".", "..") or not _PART.fullmatch(part) for part in parts)
    ):
        raise BadEntry(f"an entry is named {name[:64]!r}")
    return name
