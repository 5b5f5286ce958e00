from pathlib import Path

from palyra.nodes.agent.capabilities import platform_name, system_health


def test_it_tells_how_the_device_is(tmp_path: Path) -> None:
    health = system_health(tmp_path, "1.2")
    assert health["software_version"] == "1.2" and health["platform"] == platform_name()
    assert health["memory"]["total_bytes"] >= health["memory"]["available_bytes"] > 0
    assert health["disk"]["total_bytes"] > 0 and health["uptime_seconds"] >= 0 and len(health["load"]) == 3
