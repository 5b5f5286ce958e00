"""The list of what a backup holds: read from the archive's last entry, and checked against every other."""

import hashlib
from typing import Any, Final

import msgspec

from palyra.backup.contents import BadEntry, checked_name
from palyra.errors import Tampered, Unavailable

FORMAT: Final = "palyra.backup/1"
PAYLOAD_TYPE: Final = "application/vnd.palyra.backup+json"
# Named in the archive itself: what cannot be a name in a state directory.
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
    hint = "what is in the archive is not what was put in; take another backup"


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``journal_seq`` is the newest event in it. ``keys`` says whether keys are."""

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
        """Without the files themselves."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return {**shown, "files": len(self.files), "bytes": self.bytes}


class SignedDigest(msgspec.Struct, frozen=True, kw_only=True):
    """What is signed: a list may be longer than an envelope."""

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
    names = [checked_name(one.name) for one in found.files]
    if len(names) != len(set(names)):
        raise BadEntry("the list of contents names a file twice")
    return found


def require_format(found: str) -> None:
    if found != FORMAT:
        raise UnknownBackupFormat(f"this archive has the format {found[:64]!r}, this Palyra reads {FORMAT}")


def require_same(manifest: Manifest, found: dict[str, BackupFile]) -> None:
    """Exactly the files of the list, each as it was."""
    for listed in manifest.files:
        kept = found.get(listed.name)
        if kept is None:
            raise BackupIncomplete(f"{listed.name} is missing from the archive")
        if kept != listed:
            raise BackupChanged(f"{listed.name} is not what it was")
    if unlisted := sorted(found.keys() - {one.name for one in manifest.files}):
        raise BackupChanged(f"{unlisted[0]} is in the archive and not in its list")
