from pathlib import Path

from fakes.gateway_harness import open_harness
from fakes.skill_harness import ACTOR, PUBLISHER, archive, key


async def test_the_gateways_registry_keeps_archives_in_the_state_directory(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        registry = harness.gateway.skills
        assert not (tmp_path / "state" / "skills").exists()
        await registry.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor=ACTOR)
        installed = await registry.install(archive(), actor=ACTOR)
        assert (tmp_path / "state" / "skills" / "artifacts" / f"{installed.digest}.skill").is_file()
        assert "skill.quarantined" in harness.kinds()
