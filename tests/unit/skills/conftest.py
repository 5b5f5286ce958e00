from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.skill_harness import SkillHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SkillHarness]:
    opened = SkillHarness(tmp_path / "state")
    yield opened
    opened.close()
