from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.skill_scene import SkillHouse


@pytest.fixture
def house(tmp_path: Path) -> Iterator[SkillHouse]:
    opened = SkillHouse(tmp_path / "state")
    yield opened
    opened.close()
