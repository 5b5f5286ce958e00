import json
import shutil

import pytest

from fakes.skill_project import Author
from palyra.skills.build.project import BadProject, Language, parse_build_plan, parse_example
from palyra.skills.build.project_files import ProjectExists, read_project, write_project

PLAN = 'build_version = 1\nlanguage = "c"\n[modules."a.wasm"]\nsources = ["src/a.c"]\n'


@pytest.mark.parametrize("source", ["src/build/a.c", "builder/a.c", "build.c", "build-tools/a.c"])
def test_only_the_build_folder_itself_is_no_place_for_sources(source):
    plan = parse_build_plan(PLAN.replace("src/a.c", source).encode())
    assert plan.modules["a.wasm"].sources == (source,)


def test_a_plan_is_read():
    plan = parse_build_plan(PLAN.encode())
    assert plan.language is Language.C
    assert plan.modules["a.wasm"].sources == ("src/a.c",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PLAN.replace("= 1", "= 2"), "build_version"),
        (PLAN.replace('"c"', '"cobol"'), "cobol"),
        (PLAN.replace("sources", "files"), "files"),
        (PLAN.replace("src/a.c", "../a.c"), "not the path"),
        (PLAN.replace("src/a.c", "/etc/passwd"), "not the path"),
        (PLAN.replace("src/a.c", "-o"), "not the path"),
        (PLAN.replace("src/a.c", "build/a.c"), "is in build/"),
        (PLAN.replace('"src/a.c"', '"src/a.c", "Build/a.c"'), "is in build/"),
        (PLAN.replace("src/a.c", "BUILD./deep/a.c"), "is in build/"),
        (PLAN.replace("src/a.c", "build"), "is in build/"),
        (PLAN.replace("src/a.c", "./build/a.c"), "not the path"),
        (PLAN.replace("src/a.c", "src/../build/a.c"), "not the path"),
        (PLAN.replace("src/a.c", "build//a.c"), "not the path"),
        (PLAN.replace("src/a.c", "build /a.c"), "not the path"),
        (PLAN.replace('"src/a.c"', ""), "0 sources"),
        (PLAN.replace('"c"', '"go"'), "language is 'go'; it must be one of c, assemblyscript, python, rust, wat"),
        (PLAN.replace('"c"', '["c"]'), "it must be one of"),
        ("build_version = ", "not TOML"),
        (f"build_version = {'1' * 5_000}", "thousands of digits"),
        (f"build_version = 0x{'f' * 20_000}", "must begin with build_version"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(text, words):
    with pytest.raises(BadProject, match=words):
        parse_build_plan(text.encode())


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('{"tool": "a", "input": {}}', "either an output or an error"),
        ('{"tool": "a", "input": {}, "output": {}, "error": "x"}', "either an output or an error"),
        ('{"tool": "a", "input": {}, "output": {}, "outptu": {}}', "outptu"),
        ('{"tool": "a", "input": []}', "input"),
        ("{", "^a.json: not JSON: Expecting"),
    ],
)
def test_what_is_wrong_with_an_example_is_said(document, words):
    with pytest.raises(BadProject, match=words) as refused:
        parse_example("a.json", document.encode())
    assert "skill.toml" not in refused.value.hint, "it is the example that is wrong"


def test_modules_of_plan_and_manifest_must_be_the_same(tmp_path):
    folder = Author(tmp_path).new("hello", "wat")
    plan = folder / "build.toml"
    plan.write_text(plan.read_text().replace("hello.wasm", "other.wasm"))
    with pytest.raises(BadProject, match=r"does not say how hello\.wasm is built"):
        read_project(folder)


def test_a_missing_source_is_named(tmp_path):
    folder = Author(tmp_path).new("hello", "wat")
    (folder / "src" / "main.wat").unlink()
    with pytest.raises(BadProject, match=r"main\.wat is missing") as refused:
        read_project(folder)
    assert "build.toml names it" in refused.value.hint


def test_an_example_is_named_by_its_path_in_the_project(tmp_path):
    folder = Author(tmp_path).new("hello", "wat")
    (folder / "examples" / "odd.json").write_text('{"tool": "echo", "inputs": {}}')
    with pytest.raises(BadProject, match=r"^examples/odd\.json: .*`inputs`"):
        read_project(folder)


@pytest.mark.parametrize("name", ["examples", "assets"])
def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path, name):
    folder = Author(tmp_path).new("hello", "wat")
    shutil.rmtree(folder / name, ignore_errors=True)
    assert not (read_project(folder).examples if name == "examples" else read_project(folder).assets)
    (folder / name).write_text("not a folder")
    with pytest.raises(BadProject, match=f"cannot read .*{name}/?: Not a directory"):
        read_project(folder)


def test_assets_are_part_of_a_project(tmp_path):
    folder = Author(tmp_path).new("hello", "wat")
    (folder / "assets" / "deep").mkdir(parents=True)
    (folder / "assets" / "deep" / "words.txt").write_text("one")
    assert read_project(folder).assets == {"deep/words.txt": b"one"}


def test_nothing_that_exists_is_overwritten(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    with pytest.raises(ProjectExists):
        write_project(tmp_path / "there", {"file": "theirs"})
    assert (tmp_path / "there" / "file").read_text() == "mine"


def test_an_archive_of_older_sources_is_not_signed(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    author.data("skill", "build", "--dir", str(folder))
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    source = folder / "src" / "main.wat"
    source.write_text(source.read_text() + ";; changed\n")
    assert author.error("skill", "sign", "--dir", str(folder), "--key", key)["code"] == "skill.not_built"
    author.data("skill", "build", "--dir", str(folder))
    author.data("skill", "sign", "--dir", str(folder), "--key", key)
    assert author.error("skill", "keygen", key)["code"] == "skill.key_exists"


def test_signing_twice_gives_the_same_bytes(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    author.data("skill", "build", "--dir", str(folder))
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    first = author.data("skill", "sign", "--dir", str(folder), "--key", key)
    second = author.data("skill", "sign", "--dir", str(folder), "--key", key)
    assert first == second


def test_example_documents_of_a_project_are_read(tmp_path):
    folder = Author(tmp_path).new("hello", "wat")
    (folder / "examples" / "more.json").write_text(json.dumps({"tool": "echo", "input": {}, "error": "no"}))
    assert set(read_project(folder).examples) == {"echo.json", "more.json"}


@pytest.mark.parametrize("name", ["skill.toml", "src/main.wat", "src", "examples/echo.json", "assets", "assets/deep"])
def test_a_project_does_not_reach_out_of_itself(tmp_path, name):
    """Building a stranger's project must not sign away files of the builder's own."""
    folder = Author(tmp_path).new("hello", "wat")
    (folder / "assets" / "deep").mkdir(parents=True)
    (folder / "assets" / "deep" / "a.txt").write_text("x")
    moved = tmp_path / "elsewhere"
    (folder / name).rename(moved)
    (folder / name).symlink_to(moved)
    with pytest.raises(BadProject, match="link"):
        read_project(folder)


@pytest.mark.parametrize("name", ["build", "build/storage", "build/storage/names", "build/storage/names/a"])
def test_a_trial_does_not_follow_links_out_of_its_storage(tmp_path, name):
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    private = tmp_path / "private"
    private.mkdir()
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(private)
    error = author.error("skill", "run", "--dir", str(folder))
    assert (error["code"], "link" in error["message"]) == ("skill.bad_project", True)
    assert list(private.iterdir()) == []
