"""The life of skills through the registry: what an operator does, what then runs, and what is on record."""

import asyncio
from typing import Any

import msgspec
import pytest

from fakes.skill_harness import ACTOR, ECHO, PUBLISHER, SKILL, SkillHarness, archive, artifact, key, wat
from palyra.skills.package.configuration import ConfigurationRefused
from palyra.skills.registry.lifecycle import SkillState, WrongState
from palyra.skills.registry.records import DigestMismatch, NotRunnable, SkillVersion, UnknownSkill, VersionReused
from palyra.skills.registry.registry import SkillRegistry
from palyra.skills.trust.findings import AuditFailed
from palyra.skills.trust.publisher_keys import (
    Downgrade,
    KeyNotThePublishers,
    KeyRevoked,
    TrustLevel,
    UntrustedPublisher,
)

CONFIGURED = """
[operator.configuration]
schema = { type = "object", properties = { a = { type = "integer" } }, required = ["a"] }
"""


async def in_use(registry: SkillRegistry) -> list[str]:
    return [one.version for one in await registry.active_modules(actor="palyrad")]


async def approve(registry: SkillRegistry, version: SkillVersion) -> SkillVersion:
    return await registry.approve(version.skill_id, version.version, version.digest, actor=ACTOR)


def states(registry: SkillRegistry) -> dict[str, str]:
    return {one.version: one.state.value for one in registry.index.versions(SKILL)}


@pytest.mark.promise("P-skill-approved")
async def test_installing_is_not_enabling(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    installed = await registry.install(archive(), actor=ACTOR)
    assert installed.state is SkillState.QUARANTINED and await in_use(registry) == []
    with pytest.raises(NotRunnable):
        registry.require_runnable(SKILL, installed.digest)
    await approve(registry, installed)
    (module,) = await registry.active_modules(actor="palyrad")
    assert (module.skill_id, module.version, module.digest) == (SKILL, "1.0.0", installed.digest)
    assert module.module_bytes == wat(ECHO) and module.module_digest == artifact().module_digests["main.wasm"]
    assert [tool.id for tool in module.tools] == ["add"] and module.trust is TrustLevel.ALLOWLISTED
    registry.require_runnable(SKILL, installed.digest)


@pytest.mark.promise("P-skill-approved")
async def test_an_upgrade_runs_the_old_version_until_it_is_approved(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    old = await harness.approved(registry)
    new = await registry.install(archive("1.1.0", capabilities='channels = ["a"]'), actor=ACTOR)
    assert await in_use(registry) == ["1.0.0"]
    details = await registry.details(SKILL)
    assert details.differences[new.digest].added == ("send messages to the channel a",)
    assert details.differences[new.digest].compared_with == "1.0.0"
    await approve(registry, new)
    assert await in_use(registry) == ["1.1.0"] and states(registry) == {"1.0.0": "superseded", "1.1.0": "approved"}
    with pytest.raises(NotRunnable):
        registry.require_runnable(SKILL, old.digest)


@pytest.mark.promise("P-skill-approved")
async def test_rollback_restores_and_goes_forward_again(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        await harness.approved(registry, version)
    assert (await registry.rollback(SKILL, actor=ACTOR, reason="it crashed")).version == "1.1.0"
    assert await in_use(registry) == ["1.1.0"]
    assert (await registry.rollback(SKILL, "1.0.0", actor=ACTOR)).state is SkillState.APPROVED
    assert (await registry.rollback(SKILL, "1.2.0", actor=ACTOR)).version == "1.2.0"
    assert await in_use(registry) == ["1.2.0"]
    recorded = harness.events("skill.rolled_back")[0][1]
    assert (recorded["version"], recorded["replaces"], recorded["reason"]) == ("1.1.0", "1.2.0", "it crashed")
    with pytest.raises(WrongState):
        await registry.rollback(SKILL, "9.9.9", actor=ACTOR)


@pytest.mark.promise("P-skill-approved")
async def test_approval_is_of_exactly_one_digest(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    installed = await registry.install(archive(), actor=ACTOR)
    for version, digest in (("1.0.0", "0" * 64), ("1.0.1", installed.digest), ("1.0.0", "")):
        with pytest.raises(DigestMismatch):
            await registry.approve(SKILL, version, digest, actor=ACTOR)
    with pytest.raises(UnknownSkill):
        await registry.approve("nobody", "1.0.0", installed.digest, actor=ACTOR)
    assert await in_use(registry) == []


async def test_what_was_approved_is_told_with_the_archives_own_manifest(harness: SkillHarness) -> None:
    """Not with the record's copy of it, which somebody may have written."""
    registry = await harness.trusting()
    waiting = await registry.install(archive(capabilities="quotas = { fuel_budget = 5 }"), actor=ACTOR)
    other = msgspec.structs.replace(waiting, manifest=artifact().manifest)
    rewritten = (msgspec.json.encode(other), SKILL)
    await harness.store.transact(
        lambda tx: tx.execute("UPDATE skill_versions SET record=? WHERE skill_id=?", rewritten)
    )
    assert (await approve(registry, waiting)).manifest == waiting.manifest != other.manifest


async def test_what_waits_may_be_replaced_and_what_was_approved_may_not(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    first = await registry.install(archive(assets={"a": b"1"}), actor=ACTOR)
    second = await registry.install(archive(assets={"a": b"2"}), actor=ACTOR)
    assert not harness.file(first.digest).exists() and harness.file(second.digest).exists()
    with pytest.raises(WrongState):
        await approve(registry, first)
    await approve(registry, second)
    with pytest.raises(VersionReused):
        await registry.install(archive(assets={"a": b"3"}), actor=ACTOR)
    assert await in_use(registry) == ["1.0.0"]


async def test_the_same_archive_again_changes_nothing(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    approved = await harness.approved(registry)
    before = harness.kinds()
    assert await registry.install(archive(), actor=ACTOR) == approved and harness.kinds() == before


async def test_disable_enable_and_quarantine(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    approved = await harness.approved(registry)
    await registry.disable(SKILL, actor=ACTOR, reason="odd")
    assert await in_use(registry) == []
    with pytest.raises(WrongState):
        await registry.disable(SKILL, actor=ACTOR)
    await registry.enable(SKILL, actor=ACTOR)
    assert await in_use(registry) == ["1.0.0"]
    quarantined = await registry.quarantine(SKILL, actor=ACTOR)
    assert quarantined.state is SkillState.QUARANTINED and await in_use(registry) == []
    with pytest.raises(WrongState):
        await registry.enable(SKILL, actor=ACTOR)
    assert (await approve(registry, quarantined)).approved_ms == approved.approved_ms


async def test_a_disabled_version_does_not_come_back_over_a_newer_one(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    await harness.approved(registry)
    await registry.disable(SKILL, actor=ACTOR)
    await harness.approved(registry, "1.1.0")
    assert states(registry)["1.0.0"] == "superseded"
    with pytest.raises(WrongState):
        await registry.enable(SKILL, actor=ACTOR)


async def test_removing_deletes_the_archive_and_keeps_the_owner(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    await harness.approved(registry)
    newer = await harness.approved(registry, "1.1.0")
    (removed,) = await registry.remove(SKILL, "1.0.0", actor=ACTOR)
    assert not harness.file(removed.digest).exists() and harness.file(newer.digest).exists()
    await registry.remove(SKILL, actor=ACTOR)
    assert await in_use(registry) == [] and not list(harness.folder.iterdir())
    with pytest.raises(WrongState):
        await registry.remove(SKILL, actor=ACTOR)
    with pytest.raises(UnknownSkill):
        await registry.remove(SKILL, "7.0.0", actor=ACTOR)
    owner = registry.index.owner(SKILL)
    assert owner is not None and (owner.publisher, owner.newest_approved) == ("acme", "1.1.0")
    with pytest.raises(Downgrade):
        await registry.install(archive("1.0.0"), actor=ACTOR)
    back = await registry.install(archive("1.1.0"), actor=ACTOR)
    assert (await approve(registry, back)).state is SkillState.APPROVED


async def test_a_failed_audit_is_on_record_and_keeps_the_archive_out(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    bad = artifact(modules={"main.wasm": wat("(module)")})
    with pytest.raises(AuditFailed) as refused:
        await registry.install(bad.raw, actor=ACTOR)
    assert refused.value.details["findings"][0]["id"] == "entrypoint-missing"
    assert states(registry) == {"1.0.0": "failed"} and not harness.file(bad.digest).exists()
    assert harness.kinds()[-3:] == ["skill.ingested", "skill.audited", "skill.failed"]
    with pytest.raises(WrongState):
        await registry.rollback(SKILL, actor=ACTOR)
    assert (await harness.approved(registry)).state is SkillState.APPROVED


async def test_configuration_fits_its_version_and_is_carried_over(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    installed = await registry.install(archive(more=CONFIGURED), actor=ACTOR)
    with pytest.raises(ConfigurationRefused):
        await approve(registry, installed)
    with pytest.raises(ConfigurationRefused):
        await registry.configure(SKILL, {"a": "x"}, actor=ACTOR)
    with pytest.raises(ConfigurationRefused, match="vault"):
        await registry.configure(SKILL, {"a": 1, "api_key": "x"}, actor=ACTOR)
    assert await registry.configure(SKILL, {"a": 1}, actor=ACTOR) == {"a": 1}
    await approve(registry, installed)
    newer = await registry.install(archive("1.1.0", more=CONFIGURED + "defaults = { a = 9, b = 2 }\n"), actor=ACTOR)
    await approve(registry, newer)
    (module,) = await registry.active_modules(actor=ACTOR)
    assert module.configuration == {"a": 1, "b": 2}
    await registry.configure(SKILL, {}, "1.1.0", actor=ACTOR)
    (module,) = await registry.active_modules(actor=ACTOR)
    assert module.configuration == {"a": 9, "b": 2}
    assert (await registry.details(SKILL)).configurations == {"1.1.0": {}, "1.0.0": {"a": 1}}


async def test_first_use_pins_with_the_approval_and_not_before(harness: SkillHarness) -> None:
    strict = harness.registry()
    with pytest.raises(UntrustedPublisher):
        await strict.install(archive(), actor=ACTOR)
    registry = harness.registry(trust_on_first_use=True)
    installed = await registry.install(archive(), actor=ACTOR)
    assert installed.trust is TrustLevel.FIRST_USE and registry.publishers()[0] == []
    assert (await approve(registry, installed)).trust is TrustLevel.PINNED
    assert [one.key_id for one in registry.publishers()[0]] == [key(PUBLISHER).key_id]
    with pytest.raises(KeyNotThePublishers):
        await registry.install(archive("2.0.0", signer=key("thief")), actor=ACTOR)


async def test_two_first_uses_are_decided_by_the_first_approval(harness: SkillHarness) -> None:
    registry = harness.registry(trust_on_first_use=True)
    mine = await registry.install(archive("1.0.0"), actor=ACTOR)
    theirs = await registry.install(archive("1.1.0", signer=key("thief")), actor=ACTOR)
    await approve(registry, mine)
    with pytest.raises(KeyNotThePublishers):
        await approve(registry, theirs)


@pytest.mark.promise("P-skill-origin")
async def test_a_revoked_key_stops_what_runs_under_it(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    await harness.approved(registry)
    await harness.approved(registry, skill_id="zeta.x", publisher="zeta", signer=key("zeta"))
    waiting = await registry.install(archive("1.1.0"), actor=ACTOR)
    disabled = await registry.revoke_key(key("acme").key_id, actor=ACTOR, reason="stolen")
    assert [one.skill_id for one in disabled] == [SKILL]
    assert [one.skill_id for one in await registry.active_modules(actor=ACTOR)] == ["zeta.x"]
    for attempt in (
        lambda: registry.enable(SKILL, actor=ACTOR),
        lambda: approve(registry, waiting),
        lambda: registry.install(archive("2.0.0"), actor=ACTOR),
    ):
        with pytest.raises(KeyRevoked):
            await attempt()


async def test_judging_keeps_nothing(harness: SkillHarness) -> None:
    registry = harness.registry()
    judged = await registry.judge(archive())
    assert judged.trust is None and [one.id for one in judged.report.failing] == ["trust"]
    assert not harness.folder.exists() and harness.kinds() == []
    await registry.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor=ACTOR)
    judged = await registry.judge(archive())
    assert judged.trust is TrustLevel.ALLOWLISTED and judged.report.findings == ()
    assert judged.key_id == key(PUBLISHER).key_id and judged.difference.added_tools == ("add",)


async def test_two_daemons_share_one_truth(harness: SkillHarness) -> None:
    one, other = await harness.trusting(), harness.registry()
    installed = await one.install(archive(), actor=ACTOR)
    revision = other.index.revision()
    await approve(other, installed)
    assert await in_use(one) == ["1.0.0"] and one.index.revision() > revision
    ended = await asyncio.gather(
        *(registry.disable(SKILL, actor=ACTOR) for registry in (one, other) * 4), return_exceptions=True
    )
    assert sum(isinstance(one, SkillVersion) for one in ended) == 1 and await in_use(other) == []


@pytest.mark.promise("P-skill-approved")
async def test_rivals_who_approve_two_versions_at_once_leave_one_in_use(harness: SkillHarness) -> None:
    one, other = await harness.trusting(), harness.registry()
    versions = [await one.install(archive(f"1.{minor}.0"), actor=ACTOR) for minor in range(4)]
    await asyncio.gather(
        *(approve(registry, version) for registry, version in zip((one, other) * 2, versions, strict=True)),
        return_exceptions=True,
    )
    assert len(await in_use(one)) == 1 and list(states(one).values()).count("approved") == 1


async def test_every_refusal_is_on_record(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    for raw in (b"", archive()[:-1], archive(signer=key("thief"))):
        with pytest.raises(Exception):  # noqa: B017
            await registry.install(raw, actor=ACTOR)
    recorded: list[dict[str, Any]] = [payload for _, payload in harness.events("skill.refused")]
    assert [one["code"] for one in recorded] == [
        "skill.malformed_archive",
        "skill.malformed_archive",
        "skill.key_mismatch",
    ]
    assert not harness.folder.exists() or not list(harness.folder.iterdir())


async def test_every_ordinary_way_into_use_is_the_journals_too(harness: SkillHarness) -> None:
    registry, other = await harness.trusting(), harness.registry()

    async def runs() -> list[str]:
        """As one sees it who was there from the start, and one who comes now."""
        return [one for looks in (registry, harness.registry()) for one in await in_use(looks)]

    first = await harness.approved(registry)
    assert await runs() == ["1.0.0"] * 2
    await registry.disable(SKILL, actor=ACTOR)
    assert await runs() == []
    await other.enable(SKILL, actor=ACTOR)
    second = await other.install(archive("1.1.0"), actor=ACTOR)
    assert await runs() == ["1.0.0"] * 2
    await approve(other, second)
    assert await runs() == ["1.1.0"] * 2
    await registry.rollback(SKILL, actor=ACTOR)
    await registry.quarantine(SKILL, "1.1.0", actor=ACTOR)
    assert await runs() == ["1.0.0"] * 2
    await registry.quarantine(SKILL, actor=ACTOR)
    await approve(registry, first)
    await registry.remove(SKILL, "1.1.0", actor=ACTOR)
    assert await runs() == ["1.0.0"] * 2
    await registry.remove(SKILL, actor=ACTOR)
    assert await runs() == []
    await approve(registry, await registry.install(archive("1.1.0"), actor=ACTOR))
    assert await runs() == ["1.1.0"] * 2 == [*await in_use(other), *await in_use(other)]
    assert harness.events("skill.failed") == []
