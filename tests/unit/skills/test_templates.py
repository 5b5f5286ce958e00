"""Every template makes a project that Palyra reads; those that build quickly are built, tried and signed."""

import pytest

from fakes.skill_project import Author
from palyra.skills.build.project import Language, fill, parse_build_plan, project_names
from palyra.skills.build.project_files import read_project, template
from palyra.skills.package.manifest import parse_manifest


@pytest.mark.parametrize("language", Language)
def test_a_template_is_a_whole_project(language, tmp_path):
    author = Author(tmp_path)
    project = read_project(author.new("acme.hello", language))
    assert project.manifest.skill_id == "acme.hello"
    assert project.manifest.modules() == ("hello.wasm",)
    assert project.plan.language is language
    assert project.examples
    assert (tmp_path / "acme.hello" / ".gitignore").read_text() == "build/\n*.key\n"
    assert "palyra skill build" in (tmp_path / "acme.hello" / "README.md").read_text()


@pytest.mark.parametrize("language", Language)
def test_no_word_of_a_template_stays_open(language):
    files = fill(template(language), project_names("acme.hello", "acme"))
    assert not [path for path, text in files.items() if "@ID@" in text or "@MODULE@" in text or path.endswith(".in")]
    assert parse_manifest(files["skill.toml"].encode()).publisher == "acme"
    assert parse_build_plan(files["build.toml"].encode()).language is language


@pytest.mark.parametrize("language", ["c", "wat", "assemblyscript"])
def test_a_template_builds_passes_its_examples_and_can_be_signed(language, tmp_path):
    author = Author(tmp_path)
    folder = str(author.new("hello", language))
    built = author.data("skill", "build", "--dir", folder)
    assert built["modules"]["hello.wasm"] < 20_000
    tested = author.data("skill", "test", "--dir", folder)
    assert (tested["failed"], tested["passed"] > 0) == (0, True)
    key = str(tmp_path / "acme.key")
    author.data("skill", "keygen", key)
    signed = author.data("skill", "sign", "--dir", folder, "--key", key)
    verified = author.data("skill", "verify", signed["file"], "--key", str(tmp_path / "acme.pub"))
    assert verified["digest"] == signed["digest"]
    author.data("skill", "trust", "add", "local", str(tmp_path / "acme.pub"))
    assert author.data("skill", "audit", signed["file"])["findings"] == []
