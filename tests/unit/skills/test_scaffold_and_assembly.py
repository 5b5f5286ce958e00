import hashlib
import json

import pytest

from fakes.skill_harness import ECHO, manifest, wat
from palyra.skills.build.project import (
    BadSkillName,
    BuildPlan,
    BuiltModules,
    Language,
    ModuleBuild,
    assemble,
    fill,
    project_names,
)
from palyra.skills.package.supply_chain import Ingredient, require_provenance, require_sbom


def test_names_come_from_the_id():
    names = project_names("acme.word-count", "acme")
    assert (names.module, names.name) == ("word-count.wasm", "Word count")


@pytest.mark.parametrize("name", ["", "Acme", "a b", "../x", "a..b", "a" * 100, "a/b", "-a"])
def test_odd_names_are_refused(name):
    with pytest.raises(BadSkillName):
        project_names(name)


def test_an_odd_publisher_is_refused():
    with pytest.raises(BadSkillName, match="publisher"):
        project_names("hello", 'a"\nb')


def test_only_known_words_are_filled_in():
    filled = fill({"a/gitignore.in": "@ID@ me@example.com"}, project_names("hello"))
    assert filled == {"a/.gitignore": "hello me@example.com"}


def test_sbom_and_provenance_match_the_modules():
    module = wat(ECHO)
    plan = BuildPlan(build_version=1, language=Language.WAT, modules={"main.wasm": ModuleBuild(sources=("m.wat",))})
    built = BuiltModules(
        modules={"main.wasm": module},
        ingredients=(Ingredient(name="tool", version="1"),),
        arguments={"main.wasm": ("wat2wasm", "m.wat")},
    )
    options = {"sources": {"m.wat": b"(module)"}, "assets": {"a.txt": b"x"}}
    artifact = assemble(manifest(), plan, built, **options, origin={"candidate": "1"})
    require_sbom(artifact)
    require_provenance(artifact)
    definition = json.loads(artifact.provenance)["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["origin"] == {"candidate": "1"}
    assert definition["resolvedDependencies"] == [
        {"name": "m.wat", "digest": {"sha256": hashlib.sha256(b"(module)").hexdigest()}}
    ]
    assert artifact.assets == {"assets/a.txt": b"x"}
    again = assemble(manifest(), plan, built, **options, origin={"candidate": "1"})
    assert again.raw == artifact.raw
