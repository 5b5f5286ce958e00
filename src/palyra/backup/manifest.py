"""Manifest of a backup: its files, read from the archive's last entry and checked against every other."""

import hashlib
import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from palyra.errors import Tampered, Unavailable

DATABASE: Final = "palyra.db"
CHECKPOINT: Final = "checkpoint.json"
SIGNING_KEY: Final = "signing.key"
PUBLIC_KEY: Final = "signing.pub"

# Bounds of a name in the archive; the deepest name has six parts.
MAX_NAME_CHARS: Final = 512
MAX_NAME_PARTS: Final = 16

# Files that are made again when needed, or that belong to one process.
_PASSING_FOLDERS: Final = frozenset({"instances", "sandbox", "scratch", "compiled", "cache", "sockets"})
_PASSING_NAMES: Final = frozenset({"daemon.json", "daemon.lock", "palyra.ballast"})
_PASSING_ENDINGS: Final = ("-wal", "-shm", "-journal", ".sock", ".lock", ".new")
# Files of agents, of any size: the owner keeps them like other files of the machine.
_WORKSPACE: Final = "workspace"
# Keys and certificates of this machine at another daemon.
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
    path = PurePosixPath(name)
    top, last = path.parts[0], path.name
    if top == _WORKSPACE:
        return Part.WORKSPACE
    if last in _PASSING_NAMES or last.endswith(_PASSING_ENDINGS) or _PASSING_FOLDERS & set(path.parts[:-1]):
        return Part.PASSING
    if top in _DEVICE_FOLDERS or (last.endswith(_KEY_ENDINGS) and last != PUBLIC_KEY):
        return Part.KEY
    return Part.STATE


def check_name(name: str) -> str:
    """Return the name if it can only mean a file below the directory it is joined to, else raise."""
    parts = name.split("/")
    if (
        not 1 <= len(name) <= MAX_NAME_CHARS
        or len(parts) > MAX_NAME_PARTS
        or any(part in (".", "..") or not _PART.fullmatch(part) for part in parts)
    ):
        raise BadEntry(f"an entry is named {name[:64]!r}")
    return name


FORMAT: Final = "palyra.backup/1"
PAYLOAD_TYPE: Final = "application/vnd.palyra.backup+json"
# Names in the archive that no file of a state directory can have.
HEADER_NAME: Final = "!palyra-backup"
MANIFEST_NAME: Final = "!manifest.json"
SIGNATURE_NAME: Final = "!manifest.dsse.json"


class UnknownBackupFormat(Unavailable):
    code = "backup.unknown_format"
    hint = "use the version of Palyra that made it, or a newer one"


class BackupIncomplete(Tampered):
    code = "backup.incomplete"
    hint = "the file was cut off or put together from others; take another backup"


class BackupChanged(Tampered):
    code = "backup.changed"
    hint = "the archive was changed since it was made; take another backup"


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``journal_seq`` is the newest event in the backup. ``keys``: it has keys."""

    format: str
    palyra_version: str
    created_at: str
    journal_seq: int
    keys: bool
    files: tuple[BackupFile, ...]

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self.files)

    def summary(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return {**shown, "files": len(self.files), "bytes": self.bytes}


class SignedDigest(msgspec.Struct, frozen=True, kw_only=True):
    """The signed statement: a digest, because the list may be too long for an envelope."""

    format: str
    manifest_sha256: str


def statement_about(manifest: bytes) -> bytes:
    return msgspec.json.encode(SignedDigest(format=FORMAT, manifest_sha256=hashlib.sha256(manifest).hexdigest()))


def require_signed(manifest: bytes, statement: bytes) -> None:
    if statement != statement_about(manifest):
        raise BackupChanged("the list of contents is not the one that was signed")


def parse_manifest(raw: bytes) -> Manifest:
    try:
        found = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadEntry(f"the list of contents cannot be read: {error}") from error
    require_format(found.format)
    names = [check_name(one.name) for one in found.files]
    if len(names) != len(set(names)):
        raise BadEntry("the list of contents names a file twice")
    return found


def require_format(found: str) -> None:
    if found != FORMAT:
        raise UnknownBackupFormat(f"this archive has the format {found[:64]!r}, this Palyra reads {FORMAT}")


def require_same(manifest: Manifest, found: dict[str, BackupFile]) -> None:
    for listed in manifest.files:
        kept = found.get(listed.name)
        if kept is None:
            raise BackupIncomplete(f"{listed.name} is missing from the archive")
        if kept != listed:
            raise BackupChanged(f"{listed.name} is not what it was")
    if unlisted := sorted(found.keys() - {one.name for one in manifest.files}):
        raise BackupChanged(f"{unlisted[0]} is in the archive and not in its list")
