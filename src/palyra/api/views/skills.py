"""The data of answers about skills and the keys of their publishers."""

from typing import Any, TypedDict

from palyra.api.described import Sha256, Time
from palyra.skills.capability_difference import CapabilityDifference, GetsLess
from palyra.skills.findings import Finding
from palyra.skills.lifecycle import SkillState


class SkillVersionData(TypedDict):
    skill_id: str
    version: str
    digest: Sha256
    state: SkillState
    publisher: str
    key_id: str
    trust: str
    size: int
    errors: int
    warnings: int
    ingested_at: Time
    ingested_by: str
    updated_at: Time
    approved_at: Time | None
    approved_by: str
    reason: str


class ReviewData(TypedDict):
    """What a person needs to decide on a version. ``gets_less`` are the lines of ``capabilities`` that the settings do
    not give whole, and that it runs at all where they do not let it."""

    manifest: dict[str, Any]
    tools: list[str]
    capabilities: list[str]
    gets_less: list[GetsLess]
    difference: CapabilityDifference
    findings: list[Finding]


class ApprovedVersion(SkillVersionData):
    """``gets_less`` as in its review."""

    gets_less: list[GetsLess]


class ReviewedVersion(SkillVersionData, ReviewData):
    pass


class KeptVersion(ReviewedVersion):
    """``problem`` where its archive on disk is not what it was."""

    configuration: dict[str, Any]
    problem: str | None


class AuditData(TypedDict):
    """``trust`` is null where the signer is not trusted."""

    skill_id: str
    version: str
    publisher: str
    digest: Sha256
    key_id: str
    trust: str | None
    findings: list[Finding]
    difference: CapabilityDifference


class SkillData(TypedDict):
    skill_id: str
    name: str
    publisher: str
    active_version: str | None
    versions: list[SkillVersionData]


class SkillList(TypedDict):
    skills: list[SkillData]
    removed_left_out: int


class SkillHistoryEntry(TypedDict):
    seq: int
    time: Time
    kind: str
    version: str
    digest: str
    actor: str
    reason: str


class SkillDetails(TypedDict):
    skill_id: str
    publisher: str
    newest_approved: str | None
    versions: list[KeptVersion]
    history: list[SkillHistoryEntry]


class RemovedVersions(TypedDict):
    removed: list[SkillVersionData]


class ErasedData(TypedDict):
    values: int
    bytes: int


class ConfigurationData(TypedDict):
    configuration: dict[str, Any]


class PublisherKeyData(TypedDict):
    publisher: str
    key_id: str
    source: str
    state: str
    replaces: str
    added_at: Time
    added_by: str
    ended_at: Time | None
    reason: str


class RevokedKeyData(TypedDict):
    key_id: str
    revoked_at: Time
    revoked_by: str
    reason: str


class UnreadableKeyData(TypedDict):
    """A record that somebody has broken: it vouches for nobody."""

    publisher: str
    key_id: str
    problem: str
    remedy: str


class PublisherList(TypedDict):
    keys: list[PublisherKeyData]
    unreadable: list[UnreadableKeyData]
    revoked: list[RevokedKeyData]


class KeyRevocation(TypedDict):
    key_id: str
    disabled: list[SkillVersionData]
