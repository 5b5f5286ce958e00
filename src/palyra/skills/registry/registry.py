"""The life of skills as operators and the daemon use it: archives on disk, their record in the tables, in step.

What costs time (reading, hashing, auditing an archive) happens on a thread before the transaction; what decides
(whose key, which version, whose turn) happens inside it, against the tables as they are then. Several daemons may work
on one state directory.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from palyra.errors import PalyraError
from palyra.skills.limits import MAX_JUDGED_AT_ONCE
from palyra.skills.package.artifact import SkillArtifact, read_artifact
from palyra.skills.package.configuration import ConfigurationRefused, effective_configuration, refuse_secrets
from palyra.skills.package.manifest import SkillManifest
from palyra.skills.registry import transitions
from palyra.skills.registry.archives import ArtifactFiles, Sweeping
from palyra.skills.registry.lifecycle import KEPT, SkillEvent, SkillState, after
from palyra.skills.registry.publisher_tables import (
    PublisherTables,
    list_all_unreadable,
    list_keys,
    list_revoked,
    list_unreadable,
)
from palyra.skills.registry.records import (
    ChangedMeanwhile,
    DigestMismatch,
    HistoryEntry,
    ResolvedInstalledSkillModule,
    SkillData,
    SkillVersion,
    StoredValues,
    UnknownSkill,
    UnreadableKey,
    UnreadableVersion,
    modules_of,
    require_same,
)
from palyra.skills.registry.skill_tables import InstalledSkillsIndex, SkillTables
from palyra.skills.registry.transitions import Judged
from palyra.skills.trust.audit import audit_skill_artifact_security
from palyra.skills.trust.capability_difference import CapabilityDifference, capability_difference
from palyra.skills.trust.findings import AuditReport
from palyra.skills.trust.publisher_keys import (
    KeySource,
    PublisherKey,
    TrustLevel,
    require_no_downgrade,
    verify_rotation,
)
from palyra.skills.trust.signature import VerifiedSignature, VerifierOf, verify_signature
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction

T = TypeVar("T")
_NOTHING = StoredValues(values=0, bytes=0)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement on an archive before it is installed. ``trust`` is None if the signer is not trusted."""

    manifest: SkillManifest
    digest: str
    key_id: str
    trust: TrustLevel | None
    report: AuditReport
    difference: CapabilityDifference


class SkillDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one skill. ``differences`` are to the version in use, by digest; ``problems`` what is wrong.

    ``kept_folder`` has values of an earlier version of Palyra, which no call gets.
    """

    versions: tuple[SkillVersion, ...]
    problems: dict[str, str]
    differences: dict[str, CapabilityDifference]
    configurations: dict[str, dict[str, Any]]
    history: tuple[HistoryEntry, ...]
    kept_folder: str


class SkillRegistry:
    def __init__(
        self,
        *,
        store: Store,
        files: ArtifactFiles,
        data: SkillData,
        verifier_of: VerifierOf,
        palyra_version: str,
        trust_on_first_use: bool = False,
    ) -> None:
        self.index = InstalledSkillsIndex(store)
        self._store = store
        self._files = files
        self._data = data
        self._verifier_of = verifier_of
        self._palyra_version = palyra_version
        self._first_use = trust_on_first_use
        self._sweeping = Sweeping(files, self.index)
        self._judging = asyncio.Semaphore(MAX_JUDGED_AT_ONCE)
        # Called after every change that this process made.
        self.on_change: Callable[[], None] = lambda: None

    async def judge(self, raw: bytes) -> Judgement:
        """Look at an archive as an installation would, and keep nothing."""
        async with self._judging:
            artifact = await asyncio.to_thread(read_artifact, raw)
            key_id, trust, distrust = await self._trust(artifact)
            report = await asyncio.to_thread(self._audit, artifact, distrust)
        difference = capability_difference(artifact.manifest, await self._manifest_in_use(artifact.manifest.skill_id))
        return Judgement(
            manifest=artifact.manifest,
            digest=artifact.digest,
            key_id=key_id,
            trust=trust,
            report=report,
            difference=difference,
        )

    async def install(self, raw: bytes, *, actor: str) -> SkillVersion:
        """Put an archive into quarantine, or record its refusal. No installed skill runs before it is approved."""
        await self._sweeping.at_first()
        await self._fail_unreadable_keys(actor)
        async with self._judging:
            try:
                artifact, signature = await asyncio.to_thread(self._read_signed, raw)
                report = await asyncio.to_thread(self._audit, artifact, None)
                judged = Judged(artifact=artifact, signature=signature, report=report)
                version = await self._take_in(judged, actor)
            except PalyraError as error:
                await self._note_refused(raw, error, actor)
                await self._sweeping.one(hashlib.sha256(raw).hexdigest())
                raise
            report.require_passed()
        for other in self.index.versions(version.skill_id):
            # One that waited under the same version has made way.
            if other.state not in KEPT:
                await self._sweeping.one(other.digest)
        return version

    async def approve(self, skill_id: str, version: str, digest: str, *, actor: str, reason: str = "") -> SkillVersion:
        """Put exactly this (id, version, digest) in use, and supersede the version in use before.

        The returned version has the archive's own manifest.
        """
        found = self._one(skill_id, version, digest)
        # Raised before the archive is read: a version that was replaced or removed has none.
        after(found.state, SkillEvent.APPROVE)
        artifact = await self._read_verified(found)
        signature = await asyncio.to_thread(verify_signature, artifact, self._verifier_of)
        approved = await self._transact(
            lambda tx: transitions.approve(tx, artifact, signature, self._first_use, actor, reason)
        )
        return msgspec.structs.replace(approved, manifest=artifact.manifest)

    async def disable(self, skill_id: str, *, actor: str, reason: str = "") -> SkillVersion:
        """Stop the version in use. It stays at hand."""
        return await self._transact(
            lambda tx: transitions.move_one(tx, skill_id, None, SkillEvent.DISABLE, actor, reason)
        )

    async def quarantine(
        self, skill_id: str, version: str | None = None, *, actor: str, reason: str = ""
    ) -> SkillVersion:
        """Stop a version until it is approved again."""
        return await self._transact(
            lambda tx: transitions.move_one(tx, skill_id, version, SkillEvent.QUARANTINE, actor, reason)
        )

    async def enable(self, skill_id: str, *, actor: str, reason: str = "") -> SkillVersion:
        return await self._put_back(skill_id, None, SkillEvent.ENABLE, actor, reason)

    async def rollback(
        self, skill_id: str, version: str | None = None, *, actor: str, reason: str = ""
    ) -> SkillVersion:
        """Go back to a version that was in use: the one before, or the one named."""
        return await self._put_back(skill_id, version, SkillEvent.ROLL_BACK, actor, reason)

    async def remove(
        self, skill_id: str, version: str | None = None, *, actor: str, reason: str = ""
    ) -> list[SkillVersion]:
        """Remove one version, or all. The id stays its publisher's."""
        removed = await self._transact(lambda tx: transitions.remove(tx, skill_id, version, actor, reason))
        await self._sweeping.everything()
        return removed

    async def purge(self, skill_id: str, *, actor: str) -> StoredValues:
        """Erase the values of a removed skill, on record before it begins. An interrupted call can be repeated."""
        stored = await asyncio.to_thread(self._data.stored, skill_id) if self.index.owner(skill_id) else _NOTHING
        await self._transact(lambda tx: transitions.purge(tx, skill_id, stored, actor))
        await asyncio.to_thread(self._data.erase, skill_id)
        return stored

    async def configure(
        self, skill_id: str, chosen: dict[str, Any], version: str | None = None, *, actor: str
    ) -> dict[str, Any]:
        """Configure the version named, the one in use, or else the newest. Returns the values with the defaults."""
        found = self._to_configure(skill_id, version)
        manifest = (await self._read_verified(found)).manifest
        refuse_secrets(chosen)
        whole = effective_configuration(manifest, chosen)
        await self._transact(lambda tx: SkillTables(tx).put_configuration(found, chosen, actor=actor))
        return whole

    async def details(self, skill_id: str) -> SkillDetails:
        """Collect the versions with what each asks for beyond the one in use, read from the archives that are kept."""
        versions = await asyncio.to_thread(self.index.versions, skill_id)
        in_use = await self._manifest_in_use(skill_id)
        shown: list[SkillVersion] = []
        problems: dict[str, str] = {}
        differences: dict[str, CapabilityDifference] = {}
        for version in versions:
            manifest = version.manifest
            if version.state in KEPT:
                try:
                    manifest = (await self._read_verified(version)).manifest
                except PalyraError as error:
                    problems[version.digest] = error.message
            shown.append(msgspec.structs.replace(version, manifest=manifest))
            differences[version.digest] = capability_difference(manifest, in_use)
        configurations = {
            version.version: self.index.configuration(skill_id, version.version)
            for version in shown
            if version.state in KEPT
        }
        history = await asyncio.to_thread(self.index.history, skill_id)
        return SkillDetails(
            versions=tuple(shown),
            problems=problems,
            differences=differences,
            configurations=configurations,
            history=tuple(history),
            kept_folder=await asyncio.to_thread(self._data.kept, skill_id),
        )

    async def active_modules(self, *, actor: str) -> tuple[ResolvedInstalledSkillModule, ...]:
        """List every module of every skill in use, verified, for the catalog.

        A skill whose archive or record is not what was approved is failed, on record, and omitted; the others stay.
        """
        await self._sweeping.at_first()
        resolved: list[ResolvedInstalledSkillModule] = []
        await self._fail_unreadable_keys(actor)
        for unreadable in await asyncio.to_thread(self.index.active_unreadable):
            await self._fail_unreadable(unreadable, actor)
        for version in await asyncio.to_thread(self.index.active):
            try:
                artifact = await asyncio.to_thread(self._read_approved, version)
                configuration = effective_configuration(
                    artifact.manifest, self.index.configuration(version.skill_id, version.version)
                )
            except ChangedMeanwhile:
                continue
            except PalyraError as error:
                await self._fail(version, error, actor)
                continue
            resolved += modules_of(version, artifact, configuration)
        return tuple(resolved)

    def require_runnable(self, skill_id: str, digest: str) -> None:
        """Raise unless the version with this digest is the one in use. Call it before each call of a skill."""
        self.index.require_active(skill_id, digest)

    async def trust_publisher(self, publisher: str, public_key: bytes, *, actor: str) -> PublisherKey:
        key_id = self._verifier_of(public_key).key_id
        return await self._transact(
            lambda tx: PublisherTables(tx).add(publisher, key_id, public_key, KeySource.ALLOWLISTED, actor=actor)
        )

    async def rotate_key(self, statement: bytes, *, actor: str) -> PublisherKey:
        rotation = verify_rotation(statement, self._verifier_of)
        return await self._transact(lambda tx: PublisherTables(tx).rotate(rotation, actor=actor))

    async def distrust_publisher(self, publisher: str, key_id: str, *, actor: str) -> PublisherKey:
        return await self._transact(lambda tx: PublisherTables(tx).remove(publisher, key_id, actor=actor))

    async def revoke_key(self, key_id: str, *, actor: str, reason: str = "") -> list[SkillVersion]:
        """Revoke a key and disable the versions in use that it signed. Returns those versions."""
        return await self._transact(lambda tx: transitions.revoke(tx, key_id, actor, reason))

    def publishers(self) -> tuple[list[PublisherKey], list[dict[str, Any]]]:
        return list_keys(self._store), list_revoked(self._store)

    def unreadable_keys(self) -> list[UnreadableKey]:
        """List the rows that cannot be read. They vouch for no signer until a person clears them."""
        return list_all_unreadable(self._store)

    async def _transact(self, work: Callable[[Transaction], T]) -> T:
        try:
            return await self._store.transact(work)
        finally:
            self.on_change()

    def _read_signed(self, raw: bytes) -> tuple[SkillArtifact, VerifiedSignature]:
        artifact = read_artifact(raw)
        return artifact, verify_signature(artifact, self._verifier_of)

    def _audit(self, artifact: SkillArtifact, distrust: PalyraError | None) -> AuditReport:
        return audit_skill_artifact_security(
            artifact, verifier_of=self._verifier_of, palyra_version=self._palyra_version, distrust=distrust
        )

    async def _trust(self, artifact: SkillArtifact) -> tuple[str, TrustLevel | None, PalyraError | None]:
        """Find key, trust and the reason against it. A signature that does not verify is the audit's own finding."""
        try:
            signature = await asyncio.to_thread(verify_signature, artifact, self._verifier_of)
        except PalyraError:
            return "", None, None

        def asked(tx: Transaction) -> TrustLevel:
            level = transitions.trust_in(tx, artifact.manifest, signature.key_id, self._first_use)
            require_no_downgrade(artifact.manifest, SkillTables(tx).owner(artifact.manifest.skill_id))
            return level

        try:
            return signature.key_id, await self._transact(asked), None
        except PalyraError as refusal:
            return signature.key_id, None, refusal

    async def _put_back(
        self, skill_id: str, version: str | None, event: SkillEvent, actor: str, reason: str
    ) -> SkillVersion:
        """Put a version in use again that was approved before, once its archive proves to be the same."""
        target = transitions.target_of(self.index.versions(skill_id), skill_id, version, event)
        artifact = await self._read_verified(target)
        signature = await asyncio.to_thread(verify_signature, artifact, self._verifier_of)
        return await self._transact(lambda tx: transitions.put_back(tx, artifact, signature, event, actor, reason))

    def _one(self, skill_id: str, version: str, digest: str) -> SkillVersion:
        found = next((one for one in self.index.versions(skill_id) if one.digest == digest), None)
        if found is None or found.version != version:
            raise DigestMismatch(f"{skill_id} {version[:80]} with the digest {digest[:64]!r} is not installed")
        return found

    def _to_configure(self, skill_id: str, version: str | None) -> SkillVersion:
        kept = [one for one in self.index.versions(skill_id) if one.state in KEPT]
        if version is not None:
            kept = [one for one in kept if one.version == version]
        kept.sort(key=lambda one: one.state is not SkillState.APPROVED)
        if not kept:
            raise UnknownSkill(f"there is no {skill_id} {version or ''} to configure")
        return kept[0]

    async def _read_verified(self, version: SkillVersion) -> SkillArtifact:
        artifact = await asyncio.to_thread(self._files.read, version.digest)
        require_same(version, artifact)
        return artifact

    def _read_approved(self, version: SkillVersion) -> SkillArtifact:
        self.index.require_record(version)
        artifact = self._files.read(version.digest)
        require_same(version, artifact)
        return artifact

    async def _manifest_in_use(self, skill_id: str) -> SkillManifest | None:
        in_use = next((one for one in await asyncio.to_thread(self.index.active) if one.skill_id == skill_id), None)
        try:
            return None if in_use is None else (await asyncio.to_thread(self._read_approved, in_use)).manifest
        except PalyraError:
            # Compared with nothing everything is new, which is the careful way to show it.
            return None

    async def _fail(self, version: SkillVersion, error: PalyraError, actor: str) -> None:
        if isinstance(error, ConfigurationRefused):
            # Its archive is good; only what an operator set does not fit any more.
            event, reason = SkillEvent.DISABLE, error.message
        else:
            event, reason = SkillEvent.FAIL, f"{error.code}: {error.message}"
        await self._transact(lambda tx: transitions.give_up(tx, version, event, actor, reason))

    async def _fail_unreadable(self, row: UnreadableVersion, actor: str) -> None:
        await self._transact(lambda tx: SkillTables(tx).fail_unreadable(row, actor=actor))

    async def _fail_unreadable_keys(self, actor: str) -> None:
        rows = await asyncio.to_thread(list_unreadable, self._store)
        if rows:
            await self._transact(lambda tx: PublisherTables(tx).fail_unreadable(rows, actor=actor))

    async def _note_refused(self, raw: bytes, error: PalyraError, actor: str) -> None:
        digest = hashlib.sha256(raw).hexdigest()
        payload = {"digest": digest, "size": len(raw), "code": error.code, "message": error.message}
        event = NewEvent(kind="skill.refused", actor=actor, payload=payload)
        await self._transact(lambda tx: tx.append(event))

    async def _take_in(self, judged: Judged, actor: str) -> SkillVersion:
        """Write the file before the row that needs it. The lock keeps it from being swept in between."""

        def work(tx: Transaction) -> SkillVersion:
            return transitions.install(tx, judged, self._first_use, actor)

        if judged.report.failing:
            return await self._transact(work)
        async with self._files.lock():
            await asyncio.to_thread(self._files.put, judged.artifact.raw)
            return await self._transact(work)
