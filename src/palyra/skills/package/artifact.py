"""A skill's archive as values: what must be in it, what may be, and how its entries may be named."""

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from palyra.errors import InvalidInput, LimitExceeded, Tampered
from palyra.skills.limits import (
    MAX_ARTIFACT_BYTES,
    MAX_ENTRIES,
    MAX_ENTRY_BYTES,
    MAX_ENTRY_NAME_CHARS,
    MAX_MANIFEST_BYTES,
    MAX_MODULE_BYTES,
    MAX_MODULES,
    MAX_SIGNATURE_BYTES,
    MAX_STATEMENT_BYTES,
)
from palyra.skills.package.manifest import MANIFEST_NAME, SkillManifest, parse_manifest

# The one archive that a list of entries has.
#
# A ZIP file tells everything twice, and readers differ in whom they believe: the local headers, the central
# directory, the last end record or the first. So here a list of entries has exactly one encoding (stored, sorted,
# fixed times, no extras, no comment), and reading means: walk the local headers from the first byte, encode what was
# found, and compare every byte. What passes cannot be read in a second way. Nothing is compressed: deflate's output
# differs between libraries, which would break reproducible builds, and a reader without a decompressor has no bombs.

_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END: Final = struct.Struct("<4sHHHHIIH")
_LOCAL_MARK: Final = b"PK\x03\x04"
_CENTRAL_MARK: Final = b"PK\x01\x02"
_END_MARK: Final = b"PK\x05\x06"
# 2.0, the version every reader knows; made on Unix, so that the mode below is understood.
_NEEDED: Final = 20
_MADE_BY: Final = (3 << 8) | 20
# The first moment ZIP can express: 1980-01-01 00:00.
_TIME: Final = 0
_DATE: Final = 0x0021
# A regular file, 0644.
_ATTRIBUTES: Final = 0o100644 << 16
_ENCRYPTED: Final = 1
_SIZES_LATER: Final = 8
_ZIP64: Final = 0xFFFFFFFF


class MalformedArchive(Tampered):
    code = "skill.malformed_archive"
    hint = "build it with `palyra skill build`: a skill has exactly one archive, and other ZIP programs make others"


class ArchiveTooLarge(LimitExceeded):
    code = "skill.archive_too_large"
    hint = "a skill is at most 64 MiB in 256 entries: leave out what its tools do not need"


def write_archive(entries: Mapping[str, bytes]) -> bytes:
    """Write an archive of these entries. Names must be ASCII; the caller judges whether they make sense."""
    body, directory = bytearray(), bytearray()
    for name in sorted(entries):
        data = entries[name]
        raw = name.encode("ascii")
        facts = (_NEEDED, 0, 0, _TIME, _DATE, zlib.crc32(data), len(data), len(data), len(raw), 0)
        directory += _CENTRAL.pack(_CENTRAL_MARK, _MADE_BY, *facts, 0, 0, 0, _ATTRIBUTES, len(body)) + raw
        body += _LOCAL.pack(_LOCAL_MARK, *facts) + raw + data
    count = len(entries)
    end = _END.pack(_END_MARK, 0, 0, count, count, len(directory), len(body), 0)
    return bytes(body + directory + end)


def read_archive(raw: bytes) -> dict[str, bytes]:
    """Read the entries of an archive that is byte for byte the one ``write_archive`` makes of them."""
    if len(raw) > MAX_ARTIFACT_BYTES:
        raise ArchiveTooLarge(f"the archive has {len(raw)} bytes; at most {MAX_ARTIFACT_BYTES} are allowed")
    entries: dict[str, bytes] = {}
    at = 0
    while raw[at : at + 4] == _LOCAL_MARK:
        if len(entries) == MAX_ENTRIES:
            raise ArchiveTooLarge(f"the archive has more than {MAX_ENTRIES} entries")
        name, data, at = _entry(raw, at)
        if name in entries:
            raise MalformedArchive(f"two entries are named {name!r}")
        entries[name] = data
    if not entries:
        raise MalformedArchive("this is not a ZIP file, or something stands before its first entry")
    if list(entries) != sorted(entries):
        raise MalformedArchive("the entries are not sorted by name")
    if write_archive(entries) != raw:
        raise MalformedArchive(_why_not_the_one(raw, at))
    return entries


def _entry(raw: bytes, at: int) -> tuple[str, bytes, int]:
    if len(raw) < at + _LOCAL.size:
        raise MalformedArchive("the archive ends in the middle of a header")
    _, _, flags, method, _, _, _, packed, size, name_size, extra = _LOCAL.unpack_from(raw, at)
    start = at + _LOCAL.size + name_size
    try:
        name = raw[at + _LOCAL.size : start].decode("ascii")
    except UnicodeDecodeError:
        raise MalformedArchive("an entry's name is not ASCII") from None
    if flags & _ENCRYPTED:
        raise MalformedArchive(f"{name!r} is encrypted")
    if method != 0:
        raise MalformedArchive(f"{name!r} is compressed: entries are stored as they are")
    if _ZIP64 in (packed, size):
        raise MalformedArchive(f"{name!r} uses ZIP64, which nothing within the limits needs")
    if flags & _SIZES_LATER:
        raise MalformedArchive(f"{name!r} tells its size only after its data")
    if flags or extra or packed != size:
        raise MalformedArchive(f"{name!r} has flags, extra fields or two sizes")
    if len(raw) < start + size:
        raise MalformedArchive(f"{name!r} reaches beyond the end of the archive")
    return name, raw[start : start + size], start + size


def _why_not_the_one(raw: bytes, directory_at: int) -> str:
    """Name the commonest reasons. The comparison itself needs no reason."""
    if raw[directory_at : directory_at + 4] != _CENTRAL_MARK:
        return "something stands between the entries and their directory"
    end = raw.rfind(_END_MARK)
    if end < 0:
        return "the archive has no end record"
    if len(raw) != end + _END.size:
        return "the archive has a comment, or something stands behind its end"
    return "headers, directory and data do not agree, or times, modes or fields are not the fixed ones"


SBOM_NAME: Final = "sbom.cdx.json"
PROVENANCE_NAME: Final = "provenance.json"
SIGNATURE_NAME: Final = "signature.json"
MODULES: Final = "modules/"
ASSETS: Final = "assets/"
_REQUIRED: Final = (MANIFEST_NAME, SBOM_NAME, PROVENANCE_NAME)
_LIMITS: Final = {
    MANIFEST_NAME: MAX_MANIFEST_BYTES,
    SBOM_NAME: MAX_STATEMENT_BYTES,
    PROVENANCE_NAME: MAX_STATEMENT_BYTES,
    SIGNATURE_NAME: MAX_SIGNATURE_BYTES,
}
# A part begins with a letter or digit: no dot files, no `..`, nothing absolute, no backslash, no drive.
_PART: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?"
_MODULE_NAME: Final = re.compile(rf"modules/{_PART}\.wasm")
_ASSET_NAME: Final = re.compile(rf"assets/{_PART}(?:/{_PART})*")


class BadEntry(InvalidInput):
    code = "skill.bad_entry"
    hint = (
        "a skill holds skill.toml, sbom.cdx.json, provenance.json, signature.json, modules/NAME.wasm and assets/…, "
        "with names of ASCII letters, digits and . _ -"
    )


class EntryTooLarge(LimitExceeded):
    code = "skill.entry_too_large"
    hint = "an entry has at most 16 MiB, a module 32 MiB"


class SkillArtifact:
    """A whole, well-formed archive. Well-formed is not trusted: the signature, trust and audit come after."""

    def __init__(self, raw: bytes, entries: dict[str, bytes]) -> None:
        self.raw = raw
        self._entries = entries

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the archive: what an operator approves and what runs."""
        return hashlib.sha256(self.raw).hexdigest()

    @cached_property
    def manifest(self) -> SkillManifest:
        return parse_manifest(self._entries[MANIFEST_NAME])

    @property
    def manifest_bytes(self) -> bytes:
        return self._entries[MANIFEST_NAME]

    @property
    def sbom(self) -> bytes:
        return self._entries[SBOM_NAME]

    @property
    def provenance(self) -> bytes:
        return self._entries[PROVENANCE_NAME]

    @property
    def signature(self) -> bytes | None:
        return self._entries.get(SIGNATURE_NAME)

    @cached_property
    def modules(self) -> dict[str, bytes]:
        """By the name the manifest uses, without the folder."""
        return {name.removeprefix(MODULES): data for name, data in self._entries.items() if name.startswith(MODULES)}

    @cached_property
    def module_digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.modules.items()}

    @property
    def assets(self) -> dict[str, bytes]:
        return {name: data for name, data in self._entries.items() if name.startswith(ASSETS)}

    def signed_entries(self) -> Iterator[tuple[str, bytes]]:
        """Everything but the signature itself, sorted by name."""
        return ((name, self._entries[name]) for name in sorted(self._entries) if name != SIGNATURE_NAME)

    def with_signature(self, envelope: bytes) -> "SkillArtifact":
        return pack_artifact({**self._entries, SIGNATURE_NAME: envelope})


def read_artifact(raw: bytes) -> SkillArtifact:
    """Read an archive and its manifest. Raises for everything that is not exactly a skill's archive."""
    return _checked(raw, read_archive(raw))


def pack_artifact(entries: Mapping[str, bytes]) -> SkillArtifact:
    """Pack these entries: the same entries always give the same bytes."""
    for name in entries:
        # Before writing, which takes ASCII only.
        _check_name(name)
    raw = write_archive(entries)
    return _checked(raw, read_archive(raw))


def _checked(raw: bytes, entries: dict[str, bytes]) -> SkillArtifact:
    folded: dict[str, str] = {}
    for name, data in entries.items():
        _check_name(name)
        twin = folded.setdefault(name.lower(), name)
        if twin != name:
            raise BadEntry(f"{twin!r} and {name!r} are one file where case does not count")
        most = _LIMITS.get(name, MAX_MODULE_BYTES if name.startswith(MODULES) else MAX_ENTRY_BYTES)
        if len(data) > most:
            raise EntryTooLarge(f"{name} has {len(data)} bytes; at most {most} are allowed", entry=name)
    for name in entries:
        parent = name
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            if parent.lower() in folded:
                raise BadEntry(f"{folded[parent.lower()]!r} is both a file and a folder")
    for name in _REQUIRED:
        if name not in entries:
            raise BadEntry(f"the archive has no {name}")
    artifact = SkillArtifact(raw, entries)
    if not 1 <= len(artifact.modules) <= MAX_MODULES:
        raise BadEntry(f"the archive has {len(artifact.modules)} modules; between 1 and {MAX_MODULES} are allowed")
    for module in artifact.manifest.modules():
        if module not in artifact.modules:
            raise BadEntry(f"the manifest names the module {module!r}, and there is no {MODULES}{module}")
    return artifact


def _check_name(name: str) -> None:
    known = name in _LIMITS or _MODULE_NAME.fullmatch(name) or _ASSET_NAME.fullmatch(name)
    if not known or len(name) > MAX_ENTRY_NAME_CHARS:
        raise BadEntry(f"an entry may not be named {name[:MAX_ENTRY_NAME_CHARS]!r}")
