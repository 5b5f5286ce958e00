import pytest

from fakes.skill_harness import ACTOR, SKILL, SkillHarness, archive, artifact
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.skills.registry.lifecycle import SkillEvent, WrongState
from palyra.skills.registry.transitions import TooManySkills, put_back, target_of
from palyra.skills.trust.signature import verify_signature


async def test_the_version_meant_is_the_one_that_was_in_use_last(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        await harness.approved(registry, version)
    versions = registry.index.versions(SKILL)
    assert target_of(versions, SKILL, None, SkillEvent.ROLL_BACK).version == "1.1.0"
    assert target_of(versions, SKILL, None, SkillEvent.QUARANTINE).version == "1.2.0"
    assert target_of(versions, SKILL, "1.0.0", SkillEvent.QUARANTINE).version == "1.0.0"
    with pytest.raises(WrongState, match=r"1\.2\.0 is approved"):
        target_of(versions, SKILL, None, SkillEvent.ENABLE)


@pytest.mark.promise("P-limits")
async def test_kept_versions_are_bounded(harness: SkillHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.skills.registry.transitions.MAX_VERSIONS_KEPT", 2)
    registry = await harness.trusting()
    for version in ("1.0.0", "1.1.0"):
        await harness.approved(registry, version)
    with pytest.raises(TooManySkills):
        await registry.install(archive("1.2.0"), actor=ACTOR)
    await registry.remove(SKILL, "1.0.0", actor=ACTOR)
    await harness.approved(registry, "1.2.0")


async def test_a_version_that_was_never_approved_cannot_be_put_back(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    await registry.install(archive(), actor=ACTOR)
    signature = verify_signature(artifact(), Ed25519Verifier.from_public_bytes)
    for event in (SkillEvent.ENABLE, SkillEvent.ROLL_BACK):
        with pytest.raises(WrongState):
            harness.store.transact_blocking(
                lambda tx, event=event: put_back(tx, artifact(), signature, event, ACTOR, "")
            )
