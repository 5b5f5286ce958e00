"""A skill's archive as values: what must be in it, what may be, and how its entries may be named."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from palyra.errors import InvalidInput, LimitExceeded
from palyra.skills.limits import (
    MAX_ENTRY_BYTES,
    MAX_ENTRY_NAME_CHARS,
    MAX_MODULE_BYTES,
    MAX_MODULES,
    MAX_SIGNATURE_BYTES,
    MAX_STATEMENT_BYTES,
)
from palyra.skills.manifest import MANIFEST_NAME, SkillManifest, parse_manifest
from palyra.skills.manifest_limits import MAX_MANIFEST_BYTES
from palyra.skills.zip_format import read_archive, write_archive

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
    """Raises for everything that is not exactly a skill's archive; the manifest is parsed as well."""
    return _checked(raw, read_archive(raw))


def pack_artifact(entries: Mapping[str, bytes]) -> SkillArtifact:
    """The archive of these entries: the same entries always give the same bytes."""
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
