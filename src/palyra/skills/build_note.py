"""What a build made of a project, noted outside of the project.

An archive that lies in a project's folder may be anybody's, and its provenance says what whoever packed it wants. A
note that a build left where only its author writes tells whether the archive is still what was built, and of what.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from palyra.canonical import digest_of
from palyra.skills.project import BuildPlan

NOTE_VERSION: Final = 1
NOTES_FOLDER: Final = "skill-builds"
MAX_NOTE_BYTES: Final = 1_024


class BuildNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``inputs`` is the digest of what was built, ``archive`` that of the unsigned archive it became."""

    note_version: int = NOTE_VERSION
    inputs: str
    archive: str

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


def parse_note(raw: bytes) -> BuildNote | None:
    """None for what this version cannot read: without a note a project is built again."""
    try:
        note = msgspec.json.decode(raw, type=BuildNote)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return note if note.note_version == NOTE_VERSION else None


def note_name(folder: Path) -> str:
    """The name of the note about the project in this folder, which must be absolute and without links."""
    return f"{NOTES_FOLDER}/{hashlib.sha256(os.fsencode(folder)).hexdigest()}.json"


def inputs_digest(
    manifest: bytes, plan: BuildPlan, *, sources: Mapping[str, bytes], assets: Mapping[str, bytes]
) -> str:
    def digests(files: Mapping[str, bytes]) -> dict[str, str]:
        return {os.fsencode(name).hex(): hashlib.sha256(data).hexdigest() for name, data in files.items()}

    return digest_of(
        {
            "manifest": hashlib.sha256(manifest).hexdigest(),
            "plan": msgspec.to_builtins(plan),
            "sources": digests(sources),
            "assets": digests(assets),
        }
    )
