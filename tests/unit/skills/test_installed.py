import msgspec

from fakes.skill_harness import ACTOR, SkillHarness, archive
from palyra.skills.registry.records import RECORD_FORMAT, SkillVersion


async def test_a_record_is_read_back_as_it_was_written(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    installed = await registry.install(archive(capabilities='channels = ["a"]'), actor=ACTOR)
    assert installed.findings and installed.format == RECORD_FORMAT
    assert msgspec.json.decode(msgspec.json.encode(installed), type=SkillVersion) == installed


async def test_an_active_module_is_an_entity_that_policies_know(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    await harness.approved(registry)
    (module,) = await registry.active_modules(actor=ACTOR)
    entity = module.entity()
    assert str(entity.uid) == 'Skill::"acme.notes"'
    assert entity.attrs == {"publisher": "acme", "version": "1.0.0", "trust": "allowlisted", "status": "approved"}
