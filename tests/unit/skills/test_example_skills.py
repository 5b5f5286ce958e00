"""The skills of `examples/skills`: they build, pass their examples and an audit, and keep to the template."""

import shutil
from pathlib import Path

import pytest

from fakes.skill_project import Author
from palyra.skills.project import Language
from palyra.skills.project_files import template

EXAMPLES = Path(__file__).parents[3] / "examples" / "skills"


@pytest.mark.parametrize("name", ["json-csv", "notes", "page-text"])
def test_an_example_skill_works(name, tmp_path):
    author = Author(tmp_path)
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("build"))
    tested = author.data("skill", "test", "--dir", str(folder))
    assert tested["failed"] == 0 and tested["passed"] >= 4, tested
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    signed = author.data("skill", "sign", "--dir", str(folder), "--key", key)
    author.data("skill", "trust", "add", "palyra", str(tmp_path / "k.pub"))
    assert author.data("skill", "audit", signed["file"])["findings"] == []


@pytest.mark.parametrize("name", ["json-csv", "notes", "page-text"])
def test_example_skills_use_the_headers_of_the_template(name):
    shipped = template(Language.C)
    for header in ("palyra.h", "json.h"):
        assert (EXAMPLES / name / "src" / header).read_text() == shipped[f"src/{header}.in"]
