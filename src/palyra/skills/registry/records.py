"""The values that the registry keeps of a skill and hands to the runtime."""

from typing import Any, Protocol

import msgspec

from palyra.errors import Denied, InvalidInput, Tampered
from palyra.policy.request import Entity, EntityRef
from palyra.skills.package.artifact import SkillArtifact
from palyra.skills.package.manifest import SkillManifest, SkillTool
from palyra.skills.registry.lifecycle import SkillState
from palyra.skills.trust.findings import Finding
from palyra.skills.trust.publisher_keys import TrustLevel

RECORD_FORMAT = "palyra.skill.version.v1"


class UnknownSkill(InvalidInput):
    code = "skill.unknown"
    hint = "`palyra skill list` shows what is installed"
    http_status = 404


class VersionReused(Denied):
    code = "skill.version_reused"
    hint = "a version that was approved stays what it was: give the changed skill a new version"


class ChangedMeanwhile(InvalidInput):
    code = "skill.changed_meanwhile"
    hint = "somebody else changed this skill at the same time: look at it again"
    http_status = 409


class DigestMismatch(InvalidInput):
    code = "skill.digest_mismatch"
    hint = "approve what you have reviewed: `palyra skill show SKILL` prints the digest of each version"
    http_status = 409


class NotRunnable(Denied):
    code = "skill.not_active"
    hint = "an operator has to approve this version first: `palyra skill approve`"


class RecordChanged(Tampered):
    code = "skill.record_changed"
    hint = "the registry says something else than the journal: find out who changed the database, then install again"


class SkillVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a skill. ``manifest`` is for showing: what runs is read from the archive with ``digest``."""

    skill_id: str
    version: str
    digest: str
    state: SkillState
    publisher: str
    key_id: str
    trust: TrustLevel
    size: int
    manifest: SkillManifest
    findings: tuple[Finding, ...] = ()
    ingested_ms: int = 0
    ingested_by: str = ""
    updated_ms: int = 0
    # Set once, by the first approval: from then on this version cannot be another archive.
    approved_ms: int | None = None
    approved_by: str = ""
    reason: str = ""
    format: str = RECORD_FORMAT


class UnreadableVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A row that holds no version, or another than its columns say: another program wrote it."""

    skill_id: str
    digest: str
    version: str
    key_id: str
    record: bytes
    why: str

    def refusal(self) -> RecordChanged:
        return RecordChanged(
            f"the record of {self.skill_id[:80]} {self.version[:80]} cannot be believed: {self.why}",
            hint="find out who changed the database; `palyra skill remove` clears the record, then install again",
        )


class UnreadableKey(msgspec.Struct, frozen=True, kw_only=True):
    """A row that holds no key of a publisher. It proves nothing, but the publisher gets no trust on first use.

    ``place`` are the two columns that name the row, as raw bytes.
    """

    publisher: str
    key_id: str
    state: str
    place: tuple[bytes, bytes]
    why: str

    def refusal(self) -> RecordChanged:
        return RecordChanged(
            f"the record of the key {self.key_id[:80]} of {self.publisher[:80]} cannot be believed: {self.why}",
            hint="find out who changed the database; `palyra skill trust remove` clears the record, `add` renews it",
        )


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """``seq`` is the number of the journal entry."""

    seq: int
    time_ms: int
    kind: str
    version: str
    digest: str
    actor: str
    reason: str


def skill_entity(skill_id: str, *, publisher: str, version: str, trust: TrustLevel, state: SkillState) -> Entity:
    """Make the entity of a skill for policies: the resource of ``skill.execute`` and owner of secrets in its scope."""
    return Entity(
        uid=EntityRef("Skill", skill_id),
        attrs={"publisher": publisher, "version": version, "trust": trust.value, "status": state.value},
    )


class ResolvedInstalledSkillModule(msgspec.Struct, frozen=True, kw_only=True):
    """One module of an active skill, taken from the archive that was approved, and verified when it was read.

    ``module_digest`` is the SHA-256 of ``module_bytes``, ``digest`` that of the archive: what the approval binds.
    """

    skill_id: str
    version: str
    publisher: str
    digest: str
    trust: TrustLevel
    manifest: SkillManifest
    module: str
    module_digest: str
    module_bytes: bytes
    tools: tuple[SkillTool, ...]
    configuration: dict[str, Any]

    def entity(self) -> Entity:
        return skill_entity(
            self.skill_id,
            publisher=self.publisher,
            version=self.version,
            trust=self.trust,
            state=SkillState.APPROVED,
        )


def require_same(version: SkillVersion, artifact: SkillArtifact) -> None:
    """Raise if the archive is of another skill or version than the record says."""
    manifest = artifact.manifest
    if (manifest.skill_id, manifest.version) != (version.skill_id, version.version):
        raise DigestMismatch(f"the archive {version.digest} is {manifest.skill_id} {manifest.version}")


def modules_of(
    version: SkillVersion, artifact: SkillArtifact, configuration: dict[str, Any]
) -> list[ResolvedInstalledSkillModule]:
    """List every module of the archive with its tools."""
    manifest = artifact.manifest
    return [
        ResolvedInstalledSkillModule(
            skill_id=version.skill_id,
            version=version.version,
            publisher=version.publisher,
            digest=version.digest,
            trust=version.trust,
            manifest=manifest,
            module=module,
            module_digest=artifact.module_digests[module],
            module_bytes=artifact.modules[module],
            tools=tuple(tool for tool in manifest.tools if tool.module == module),
            configuration=configuration,
        )
        for module in manifest.modules()
    ]


class StoredValues(msgspec.Struct, frozen=True, kw_only=True):
    """The number and size of the values that a skill keeps between its calls."""

    values: int
    bytes: int


class SkillData(Protocol):
    """The values that skills keep between their calls, for each principal in a place of its own. Blocking."""

    def stored(self, skill_id: str) -> StoredValues: ...

    def kept(self, skill_id: str) -> str:
        """Return the folder of values that an earlier version kept for all principals together, or an empty text."""

    def erase(self, skill_id: str) -> None:
        """Delete everything. Harmless when there is nothing."""
