"""The changes of a skill's versions, each as one unit of work, decided against the tables as they are inside it."""

from collections.abc import Sequence
from typing import Final

import msgspec

from palyra.errors import LimitExceeded
from palyra.skills.limits import MAX_SKILLS, MAX_VERSIONS_KEPT
from palyra.skills.package.artifact import SkillArtifact
from palyra.skills.package.configuration import effective_configuration
from palyra.skills.package.manifest import SkillManifest, Version
from palyra.skills.registry.lifecycle import KEPT, TRANSITIONS, SkillEvent, SkillState, WrongState, in_words
from palyra.skills.registry.publisher_tables import PublisherTables
from palyra.skills.registry.records import (
    ChangedMeanwhile,
    DigestMismatch,
    SkillVersion,
    StoredValues,
    UnknownSkill,
    VersionReused,
)
from palyra.skills.registry.skill_tables import SkillTables
from palyra.skills.trust.findings import AuditReport, Severity
from palyra.skills.trust.publisher_keys import (
    KeyRevoked,
    KeySource,
    SkillOwner,
    TrustLevel,
    TrustQuestion,
    require_no_downgrade,
    require_trust,
)
from palyra.skills.trust.signature import VerifiedSignature
from palyra.store.port import Transaction

_IN_THE_WAY: Final = (SkillState.APPROVED, SkillState.DISABLED)


class TooManySkills(LimitExceeded):
    code = "skill.too_many"
    hint = "remove skills or old versions that are not used any more"


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that was read, whose signature verified, and that was audited."""

    artifact: SkillArtifact
    signature: VerifiedSignature
    report: AuditReport


def trust_in(tx: Transaction, manifest: SkillManifest, key_id: str, first_use: bool) -> TrustLevel:
    publishers = PublisherTables(tx)
    revoked, unreadable = publishers.revoked(), publishers.unreadable(manifest.publisher)
    keys = publishers.keys(manifest.publisher)
    broken = next((row for row in unreadable if row.key_id == key_id), None)
    if broken is not None and key_id not in revoked:
        raise broken.refusal()
    return require_trust(
        TrustQuestion(
            manifest=manifest,
            key_id=key_id,
            keys=keys,
            revoked=revoked,
            owner=SkillTables(tx).owner(manifest.skill_id),
            on_record=bool(unreadable) or (not keys and publishers.met_on_record(manifest.publisher)),
            trust_on_first_use=first_use,
        )
    )


def install(tx: Transaction, judged: Judged, first_use: bool, actor: str) -> SkillVersion:
    """Ingested, audited, and then in quarantine or failed. The same archive again changes nothing."""
    tables = SkillTables(tx)
    artifact, manifest = judged.artifact, judged.artifact.manifest
    trust = trust_in(tx, manifest, judged.signature.key_id, first_use)
    require_no_downgrade(manifest, tables.owner(manifest.skill_id))
    known = tables.versions(manifest.skill_id)
    same = next((one for one in known if one.digest == artifact.digest), None)
    if same is not None and same.state in KEPT:
        return same
    _make_room(tables, known, artifact, actor)
    new = SkillVersion(
        skill_id=manifest.skill_id,
        version=manifest.version,
        digest=artifact.digest,
        state=SkillState.INGESTED,
        publisher=manifest.publisher,
        key_id=judged.signature.key_id,
        trust=trust,
        size=len(artifact.raw),
        manifest=manifest,
        findings=judged.report.findings,
    )
    version = tables.ingest(new, actor=actor)
    counts = {severity: sum(one.severity is severity for one in judged.report.findings) for severity in Severity}
    version = tables.move(
        version,
        SkillEvent.AUDIT,
        actor=actor,
        errors=counts[Severity.ERROR],
        warnings=counts[Severity.WARNING],
        rules=sorted({one.id for one in judged.report.findings}),
    )
    failing = judged.report.failing
    if failing:
        reason = f"audit: {', '.join(sorted({one.id for one in failing}))}"
        return tables.move(version, SkillEvent.FAIL, actor=actor, reason=reason)
    return tables.move(version, SkillEvent.QUARANTINE, actor=actor)


def _make_room(tables: SkillTables, known: Sequence[SkillVersion], artifact: SkillArtifact, actor: str) -> None:
    manifest = artifact.manifest
    for other in known:
        if other.version != manifest.version or other.digest == artifact.digest:
            continue
        if other.approved_ms is not None:
            raise VersionReused(
                f"{manifest.skill_id} {manifest.version} was approved with another content: {other.digest}",
                digest=other.digest,
            )
        if other.state in KEPT:
            # Nobody has approved it: the author corrects what waits.
            tables.move(other, SkillEvent.REMOVE, actor=actor, reason=f"replaced by {artifact.digest}")
    if sum(one.state in KEPT for one in known) >= MAX_VERSIONS_KEPT or (not known and tables.count() >= MAX_SKILLS):
        raise TooManySkills(f"there are too many versions of {manifest.skill_id}, or too many skills")


def approve(
    tx: Transaction, artifact: SkillArtifact, signature: VerifiedSignature, first_use: bool, actor: str, reason: str
) -> SkillVersion:
    tables = SkillTables(tx)
    manifest = artifact.manifest
    version = _current(tables, manifest.skill_id, artifact.digest)
    trust = trust_in(tx, manifest, signature.key_id, first_use)
    owner = tables.owner(manifest.skill_id)
    if version.approved_ms is None:
        require_no_downgrade(manifest, owner)
    if (version.key_id, version.version) != (signature.key_id, manifest.version):
        raise DigestMismatch(f"the record of {manifest.skill_id} tells of another key or version than the archive")
    if trust is TrustLevel.FIRST_USE:
        PublisherTables(tx).add(
            manifest.publisher, signature.key_id, signature.public_key, KeySource.FIRST_USE, actor=actor
        )
        trust = TrustLevel.PINNED
    compared = _supersede(tables, version, SkillEvent.APPROVE, actor)
    _carry_configuration(tables, manifest, compared, actor, version)
    approved = tables.move(
        msgspec.structs.replace(version, trust=trust),
        SkillEvent.APPROVE,
        actor=actor,
        reason=reason,
        replaces=compared.version if compared else "",
    )
    newest = manifest.version
    if owner is not None and owner.newest_approved and Version.parse(newest) < Version.parse(owner.newest_approved):
        newest = owner.newest_approved
    tables.put_owner(
        SkillOwner(
            skill_id=manifest.skill_id,
            publisher=manifest.publisher,
            key_id=signature.key_id,
            newest_approved=newest,
        )
    )
    return approved


def put_back(
    tx: Transaction, artifact: SkillArtifact, signature: VerifiedSignature, event: SkillEvent, actor: str, reason: str
) -> SkillVersion:
    """Enable a version that a person approved before, or roll back to it."""
    tables = SkillTables(tx)
    version = _current(tables, artifact.manifest.skill_id, artifact.digest)
    if signature.key_id in PublisherTables(tx).revoked():
        raise KeyRevoked(f"{version.skill_id} {version.version} is signed with {signature.key_id}, which was revoked")
    if version.key_id != signature.key_id:
        raise DigestMismatch(f"the record of {version.skill_id} tells of another key than the archive")
    effective_configuration(artifact.manifest, tables.configuration(version.skill_id, version.version) or {})
    compared = _supersede(tables, version, event, actor)
    return tables.move(version, event, actor=actor, reason=reason, replaces=compared.version if compared else "")


def move_one(
    tx: Transaction, skill_id: str, version: str | None, event: SkillEvent, actor: str, reason: str
) -> SkillVersion:
    """Move the version named, or the one version that this can happen to."""
    tables = SkillTables(tx)
    found = target_of(tables.versions(skill_id), skill_id, version, event)
    return tables.move(found, event, actor=actor, reason=reason)


def remove(tx: Transaction, skill_id: str, version: str | None, actor: str, reason: str) -> list[SkillVersion]:
    tables = SkillTables(tx)
    cleared = [one for one in tables.unreadable(skill_id) if version in (None, one.version)]
    for unreadable in cleared:
        tables.clear_unreadable(unreadable, actor=actor, reason=reason)
    found = [one for one in tables.versions(skill_id) if version in (None, one.version)]
    going = [one for one in found if (one.state, SkillEvent.REMOVE) in TRANSITIONS]
    if not found and not cleared:
        raise UnknownSkill(f"there is no {skill_id[:80]} {version or ''}".rstrip())
    if not going and not cleared:
        raise WrongState(f"{skill_id}{f' {version}' if version else ''} is removed already")
    for one in going:
        tables.forget_configuration(skill_id, one.version)
    return [tables.move(one, SkillEvent.REMOVE, actor=actor, reason=reason) for one in going]


def purge(tx: Transaction, skill_id: str, stored: StoredValues, actor: str) -> None:
    """Record that the values of a skill are erased. Allowed only if no version of it can run any more."""
    tables = SkillTables(tx)
    versions = tables.versions(skill_id)
    if not versions:
        raise UnknownSkill(f"there is no {skill_id[:80]}")
    if there := [one.version for one in versions if one.state not in (SkillState.REMOVED, SkillState.FAILED)]:
        raise WrongState(
            f"{skill_id} {there[0]} is still there", hint=f"`palyra skill remove {skill_id}` first, then purge"
        )
    tables.note_purged(max(versions, key=lambda one: one.updated_ms), stored, actor=actor)


def revoke(tx: Transaction, key_id: str, actor: str, reason: str) -> list[SkillVersion]:
    tables = SkillTables(tx)
    PublisherTables(tx).revoke(key_id, reason, actor=actor)
    return [
        tables.move(one, SkillEvent.DISABLE, actor=actor, reason=f"the key {key_id} was revoked: {reason}".rstrip(": "))
        for one in tables.list_signed_with(key_id)
        if one.state is SkillState.APPROVED
    ]


def give_up(tx: Transaction, version: SkillVersion, event: SkillEvent, actor: str, reason: str) -> None:
    """Take a version out of use that is not what was approved. Another daemon may have done it already."""
    tables = SkillTables(tx)
    now = tables.version(version.skill_id, version.digest)
    if now is not None and now.state is SkillState.APPROVED:
        tables.move(now, event, actor=actor, reason=reason)


def target_of(versions: Sequence[SkillVersion], skill_id: str, version: str | None, event: SkillEvent) -> SkillVersion:
    """Find the version named, or of those that the event can happen to the one that was in use last."""
    if not versions:
        raise UnknownSkill(f"there is no skill {skill_id[:80]!r}")
    named = [one for one in versions if version in (None, one.version)]
    fitting = [one for one in named if (one.state, event) in TRANSITIONS]
    if version is None and event is SkillEvent.QUARANTINE:
        # Without a name the one in use is meant.
        fitting = [one for one in fitting if one.state in _IN_THE_WAY]
    if version is None and event is SkillEvent.ROLL_BACK:
        # Back is to an older one: what was left by going back is reached by its name.
        newest = max((Version.parse(one.version) for one in versions if one.state in _IN_THE_WAY), default=None)
        fitting = [one for one in fitting if newest is None or Version.parse(one.version) < newest]
    if not fitting:
        states = ", ".join(f"{one.version} is {one.state.value}" for one in named) or f"there is no {version}"
        raise WrongState(
            f"no version of {skill_id} can {in_words(event)} now: {states}",
            hint=f"`palyra skill show {skill_id}` shows the state of each version",
        )
    return max(fitting, key=lambda one: (one.updated_ms, Version.parse(one.version)))


def _current(tables: SkillTables, skill_id: str, digest: str) -> SkillVersion:
    version = tables.version(skill_id, digest)
    if version is None:
        raise ChangedMeanwhile(f"{skill_id} with the digest {digest} is not installed any more")
    return version


def _supersede(tables: SkillTables, new: SkillVersion, event: SkillEvent, actor: str) -> SkillVersion | None:
    """Supersede the other versions. Enabling fails if a newer one was approved since."""
    others = [one for one in tables.versions(new.skill_id) if one.state in _IN_THE_WAY and one.digest != new.digest]
    if others and event is SkillEvent.ENABLE:
        raise WrongState(f"{others[0].version} is {others[0].state.value}: use rollback to go back to {new.version}")
    for one in others:
        tables.move(one, SkillEvent.SUPERSEDE, actor=actor, reason=f"{new.version} takes its place")
    return max(others, key=lambda one: one.updated_ms, default=None)


def _carry_configuration(
    tables: SkillTables, manifest: SkillManifest, before: SkillVersion | None, actor: str, version: SkillVersion
) -> None:
    """Keep the configuration of this version, else that of the one before it. Either has to fit."""
    chosen = tables.configuration(manifest.skill_id, manifest.version)
    carried = chosen is None and before is not None
    if carried and before is not None:
        chosen = tables.configuration(manifest.skill_id, before.version)
    effective_configuration(manifest, chosen or {})
    if carried and chosen:
        tables.put_configuration(version, chosen, actor=actor)
