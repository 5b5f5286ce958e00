import json
import os
import sys
from pathlib import Path

import pytest

from fakes.skill_project import Author
from palyra.skills.build.project import Language, ModuleBuild
from palyra.skills.build.toolchain import (
    CACHE_VARIABLE,
    PACKAGES,
    BuildFailed,
    Toolchains,
    ToolchainUnavailable,
    default_cache,
)
from palyra.skills.package.artifact import read_artifact

MAIN = {"m.wasm": ModuleBuild(sources=("main.c",))}


def toolchains(cache, path="", **environ):
    said = []
    made = Toolchains(cache, wit=cache / "none.wit", environ={"PATH": path, **environ}, say=said.append)
    return made, said


def test_every_compiler_has_a_pinned_version_and_a_purl():
    assert {package.registry for package in PACKAGES.values()} == {"pypi", "npm"}
    for package in PACKAGES.values():
        assert package.version[0].isdigit()
        assert package.ingredient.purl == f"pkg:{package.registry}/{package.name}@{package.version}"


def test_compilers_are_kept_in_the_users_cache(tmp_path):
    assert default_cache({CACHE_VARIABLE: str(tmp_path)}) == tmp_path
    assert "toolchains" in default_cache({}).parts


def test_a_registry_that_does_not_answer_is_a_clear_error(tmp_path):
    """The index is a closed port of this machine, and retries are off: as if the machine were offline."""
    made, said = toolchains(
        tmp_path / "cache",
        PIP_INDEX_URL="https://127.0.0.1:9/simple",
        PIP_EXTRA_INDEX_URL="",
        PIP_RETRIES="0",
        PIP_NO_CACHE_DIR="1",
        PIP_CONFIG_FILE=os.devnull,
        NO_PROXY="*",
    )
    with pytest.raises(ToolchainUnavailable) as refused:
        made.build(tmp_path, Language.C, MAIN)
    assert "fetching ziglang==" in refused.value.message
    assert "online" in refused.value.hint
    assert said and "ziglang" in said[0]
    # Nothing half-fetched is left that a later build would take for a compiler.
    assert [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".lock"] == []


def test_without_node_there_is_a_clear_error(tmp_path):
    made, _ = toolchains(tmp_path / "cache", path=str(tmp_path))
    with pytest.raises(ToolchainUnavailable, match="npm"):
        made.build(tmp_path, Language.ASSEMBLYSCRIPT, MAIN)


def test_without_rust_or_its_target_there_is_a_clear_error(tmp_path):
    made, _ = toolchains(tmp_path / "cache", path=str(tmp_path))
    with pytest.raises(ToolchainUnavailable) as refused:
        made.build(tmp_path, Language.RUST, MAIN)
    assert "rustup target add" in refused.value.hint
    fake = tmp_path / "rustc"
    fake.write_text(f"#!{sys.executable}\nprint('/nowhere')\n")
    fake.chmod(0o755)
    with pytest.raises(ToolchainUnavailable, match="without its target"):
        made.build(tmp_path, Language.RUST, MAIN)


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "cache").write_text("a file")
    made, _ = toolchains(tmp_path / "cache" / "below")
    with pytest.raises(ToolchainUnavailable, match="cannot write"):
        made.build(tmp_path, Language.C, MAIN)


def test_errors_of_the_compiler_are_shown(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "c")
    (folder / "src" / "main.c").write_text("int nonsense(")
    error = author.error("skill", "build", "--dir", str(folder))
    assert error["code"] == "skill.build_failed"
    assert "main.c" in error["message"]


def test_errors_in_text_form_are_shown(tmp_path):
    (tmp_path / "main.wat").write_text("(module")
    made, _ = toolchains(tmp_path / "cache")
    with pytest.raises(BuildFailed, match=r"main\.wat"):
        made.build(tmp_path, Language.WAT, {"m.wasm": ModuleBuild(sources=("main.wat",))})


def test_the_same_sources_in_another_folder_give_the_same_archive(tmp_path):
    author = Author(tmp_path)
    digests = set()
    for place in ("one", "two"):
        folder = tmp_path / place
        author.data("skill", "new", "hello", "--dir", str(folder))
        digests.add(author.data("skill", "build", "--dir", str(folder))["digest"])
    assert len(digests) == 1


def test_the_archive_tells_of_compiler_and_sources(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "c")
    built = author.data("skill", "build", "--dir", str(folder))
    artifact = read_artifact(Path(built["file"]).read_bytes())
    components = {one["name"]: one for one in json.loads(artifact.sbom)["components"]}
    assert components["ziglang"]["purl"].startswith("pkg:pypi/ziglang@")
    definition = json.loads(artifact.provenance)["predicate"]["buildDefinition"]
    assert {one["name"] for one in definition["resolvedDependencies"]} == {"src/main.c", "src/palyra.h", "src/json.h"}
    assert definition["externalParameters"]["language"] == "c"
    assert str(tmp_path) not in artifact.provenance.decode()


def test_rust_builds_where_its_target_is_installed(tmp_path):
    """On a machine without it, the hint names the way to get it."""
    author = Author(tmp_path)
    folder = str(author.new("hello", "rust"))
    status, document = author.run("skill", "build", "--dir", folder)
    if status:
        assert document["error"]["code"] == "skill.toolchain_unavailable"
        assert "wasm32-unknown-unknown" in document["error"]["hint"]
    else:
        assert author.data("skill", "test", "--dir", folder)["failed"] == 0
