import msgspec

from fakes.skill_scene import ACTOR, SkillHouse, archive
from palyra.skills.installed import RECORD_FORMAT, SkillVersion


async def test_a_record_is_read_back_as_it_was_written(house: SkillHouse) -> None:
    registry = await house.trusting()
    installed = await registry.install(archive(capabilities='channels = ["a"]'), actor=ACTOR)
    assert installed.findings and installed.format == RECORD_FORMAT
    assert msgspec.json.decode(msgspec.json.encode(installed), type=SkillVersion) == installed
