from pathlib import Path

from fakes.house import open_house
from fakes.skill_scene import ACTOR, PUBLISHER, archive, key


async def test_the_gateways_registry_keeps_archives_in_the_state_directory(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        registry = house.gateway.skills
        assert not (tmp_path / "state" / "skills").exists()
        await registry.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor=ACTOR)
        installed = await registry.install(archive(), actor=ACTOR)
        assert (tmp_path / "state" / "skills" / "artifacts" / f"{installed.digest}.skill").is_file()
        assert "skill.quarantined" in house.kinds()
