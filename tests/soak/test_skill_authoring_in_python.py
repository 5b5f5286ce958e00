"""The commands of write-a-skill.md for a skill in Python: an interpreter is built once and compiled twice."""

from pathlib import Path

import pytest

from fakes.authoring import follow_the_page


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_the_documented_commands_for_python_lead_to_a_skill_that_answers(tmp_path: Path) -> None:
    assert follow_the_page("In Python", tmp_path)["result"] == {"greeting": "Hello, Ada!"}
