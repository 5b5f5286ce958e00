"""From nothing to a skill that answers, by the commands of write-a-skill.md. Python's are in tests/soak."""

from pathlib import Path

import pytest

from fakes.authoring import PAGE, follow_the_page
from fakes.documented import commands_under
from fakes.skill_project import Author


@pytest.mark.parametrize("heading", ["In C", "In AssemblyScript"])
def test_the_documented_commands_lead_to_a_skill_that_answers(heading: str, tmp_path: Path) -> None:
    called = follow_the_page(heading, tmp_path)
    assert called["status"] == "succeeded"
    assert called["result"] == {"greeting": "Hello, Ada!"}


def test_python_has_the_same_commands() -> None:
    def without_language(heading: str) -> list[list[str]]:
        return [[word for word in words if word != heading.lower()[3:]] for words in commands_under(PAGE, heading)]

    assert without_language("In Python") == without_language("In C")


@pytest.mark.timeout(600)
def test_a_skill_in_python_is_built_tested_and_audited(tmp_path: Path) -> None:
    """Without a daemon: compiling an interpreter a second time would take as long again."""
    author = Author(tmp_path)
    folder = str(author.new("hello", "python"))
    assert author.data("skill", "test", "--dir", folder)["failed"] == 0
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    signed = author.data("skill", "sign", "--dir", folder, "--key", key)
    author.data("skill", "trust", "add", "local", str(tmp_path / "k.pub"))
    findings = author.data("skill", "audit", signed["file"])["findings"]
    assert {one["id"] for one in findings} == {"url-not-allowed", "memory-unbounded"}
