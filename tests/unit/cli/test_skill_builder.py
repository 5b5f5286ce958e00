import json
import sys
from pathlib import Path

import pytest

from fakes.skill_project import Author
from palyra.ids import RunId
from palyra.skills.build.project import Language, fill, project_names
from palyra.skills.build.project_files import template

ON = '[skills]\nbuilder_enabled = true\n[tools]\npreapproved = ["fs.*"]\n'


def recorded(author: Author) -> str:
    run = str(RunId.new())
    for tool, arguments in (
        ("echo", {"text": "hi"}),
        ("fs.write", {"path": "a.txt", "content": "Zoë\n"}),
        ("fs.read", {"path": "a.txt"}),
    ):
        author.data("call", tool, "--run-id", run, "--input", json.dumps(arguments))
    return run


def key_of(author: Author, root: Path) -> str:
    key = str(root / "k.key")
    author.data("skill", "keygen", key)
    author.data("skill", "trust", "add", "local", str(root / "k.pub"))
    return key


def test_the_builder_is_off_by_default(tmp_path):
    author = Author(tmp_path)
    for words in (("list",), ("create", "x", "--prompt", "y"), ("show", "x"), ("discard", "x")):
        assert author.error("skill", "builder", *words)["code"] == "skill.builder_disabled"


def test_from_recorded_runs_to_a_skill_in_quarantine(tmp_path):
    author = Author(tmp_path, ON)
    made = author.data("skill", "builder", "create", "acme.rec", "--from-runs", recorded(author))
    candidate = made["candidate"]["id"]
    shown = author.data("skill", "builder", "show", candidate)
    assert shown["digest"] == made["digest"]
    assert 'write_roots = ["files"]' in shown["files"]["skill.toml"]
    assert json.loads(shown["files"]["examples/fs_write-1.json"])["input"] == {"path": "a.txt", "content": "Zoë\n"}
    key = key_of(author, tmp_path)
    promote = ("skill", "builder", "promote", candidate, "--key", key, "--digest")
    installed = author.data(*promote, made["digest"])
    assert installed["state"] == "quarantined"
    assert author.data("skill", "list")["skills"][0]["active_version"] is None
    listed = author.data("skill", "builder", "list")["candidates"][0]
    assert (listed["state"], listed["artifact_digest"]) == ("promoted", installed["digest"])
    assert author.error(*promote, made["digest"])["code"] == "skill.candidate_closed"


def test_what_was_changed_after_the_review_is_not_promoted(tmp_path):
    author = Author(tmp_path, ON)
    made = author.data("skill", "builder", "create", "acme.rec", "--from-runs", recorded(author))
    key = key_of(author, tmp_path)
    source = Path(made["folder"]) / "src" / "main.c"
    source.write_text(source.read_text() + "/* more */\n")
    words = ("skill", "builder", "promote", made["candidate"]["id"], "--key", key, "--digest", made["digest"])
    assert author.error(*words)["code"] == "skill.candidate_changed"
    assert author.data("skill", "list")["skills"] == []


def test_a_candidate_without_passing_examples_is_not_promoted(tmp_path):
    author = Author(tmp_path, ON)
    made = author.data("skill", "builder", "create", "acme.words", "--prompt", "count words")
    key = key_of(author, tmp_path)
    words = ("skill", "builder", "promote", made["candidate"]["id"], "--key", key, "--digest")
    assert author.error(*words, made["digest"])["code"] == "skill.examples_failed"
    example = Path(made["folder"]) / "examples" / "a.json"
    example.parent.mkdir()
    example.write_text('{"tool": "run", "input": {}, "output": {}}')
    digest = author.data("skill", "builder", "show", made["candidate"]["id"])["digest"]
    refused = author.error(*words, digest)
    assert refused["code"] == "skill.examples_failed"
    assert "not written yet" in refused["details"]["problems"]["a.json"][0]
    author.data("skill", "builder", "discard", made["candidate"]["id"])
    assert not Path(made["folder"]).exists()
    assert author.data("skill", "builder", "list")["candidates"][0]["state"] == "discarded"


def test_an_external_generator_is_held_to_what_was_recorded(tmp_path):
    program = tmp_path / "generator.py"
    program.write_text(
        "import json, sys\n"
        "asked = json.load(sys.stdin)['request']\n"
        "files = {'skill.toml': 'x', '../evil': 'y'}\n"
        "json.dump({'protocol': 'palyra.skill.generate.v1', 'files': files}, sys.stdout)\n"
    )
    command = json.dumps([sys.executable, str(program)])
    author = Author(tmp_path, f"[skills]\nbuilder_enabled = true\nbuilder_command = {command}\n")
    refused = author.error("skill", "builder", "create", "acme.x", "--prompt", "y")
    assert refused["code"] == "skill.bad_generation"
    assert author.data("skill", "builder", "list")["candidates"] == []


def generating(root: Path, files: dict[str, str], notes: tuple[str, ...] = ()) -> Author:
    """With an external generator that answers with these files, whatever it is asked."""
    answer = root / "answer.json"
    answer.write_text(json.dumps({"protocol": "palyra.skill.generate.v1", "files": files, "notes": notes}))
    command = json.dumps([sys.executable, "-c", f"print(open({str(answer)!r}).read())"])
    return Author(root, f"[skills]\nbuilder_enabled = true\nbuilder_command = {command}\n")


def echoing() -> dict[str, str]:
    files = fill(template(Language.WAT), project_names("acme.x", "local"))
    return {path: text for path, text in files.items() if not path.startswith(".")}


CREATE = ("skill", "builder", "create", "acme.x", "--prompt", "echo", "--lang", "wat")


@pytest.mark.promise("P-skill-origin")
def test_a_generator_cannot_have_built_what_no_reviewer_is_shown(tmp_path):
    """A decoy to look at, and beside it the real source, where `show` does not look and the digest does not reach."""
    honest = echoing()
    hidden = {
        **honest,
        "build.toml": honest["build.toml"].replace("src/main.wat", "build/main.wat"),
        "build/main.wat": honest["src/main.wat"],
    }
    author = generating(tmp_path, hidden)
    refused = author.error(*CREATE)
    assert refused["code"] == "skill.bad_generation"
    assert "build/main.wat" in refused["message"]
    assert author.data("skill", "builder", "list")["candidates"] == []


def test_a_candidate_that_is_edited_to_build_from_its_build_folder_is_not_promoted(tmp_path):
    author = generating(tmp_path, echoing())
    made = author.data(*CREATE)
    folder = Path(made["folder"])
    plan = folder / "build.toml"
    plan.write_text(plan.read_text().replace("src/main.wat", "build/main.wat"))
    (folder / "build").mkdir()
    (folder / "build" / "main.wat").write_bytes((folder / "src" / "main.wat").read_bytes())
    shown = author.data("skill", "builder", "show", made["candidate"]["id"])
    words = ("skill", "builder", "promote", made["candidate"]["id"], "--key", key_of(author, tmp_path), "--digest")
    assert author.error(*words, shown["digest"])["code"] == "skill.bad_project"
    assert author.data("skill", "list")["skills"] == []


@pytest.mark.promise("P-skill-origin")
def test_a_candidate_is_built_of_what_was_reviewed_alone(tmp_path):
    """A file in build/ is not in the digest, and so an include must not find it."""
    author = Author(tmp_path, ON)
    made = author.data("skill", "builder", "create", "acme.rec", "--from-runs", recorded(author))
    folder = Path(made["folder"])
    source = folder / "src" / "main.c"
    source.write_text('#include "../build/more.h"\n' + source.read_text())
    shown = author.data("skill", "builder", "show", made["candidate"]["id"])
    (folder / "build").mkdir()
    (folder / "build" / "more.h").write_text("/* nobody has seen this */\n")
    words = ("skill", "builder", "promote", made["candidate"]["id"], "--key", key_of(author, tmp_path), "--digest")
    assert author.error(*words, shown["digest"])["code"] == "skill.build_failed"


def test_a_generator_that_floods_its_notes_leaves_nothing_behind(tmp_path):
    author = generating(tmp_path, echoing(), notes=("x" * 2 * 1024 * 1024,))
    assert author.error(*CREATE)["code"] == "skill.bad_generation"
    assert author.data("skill", "builder", "list") == {"candidates": [], "broken": {}}


def test_one_candidate_that_cannot_be_read_is_in_nobodys_way(tmp_path):
    author = generating(tmp_path, echoing())
    kept, broken = author.data(*CREATE)["candidate"]["id"], author.data(*CREATE)["candidate"]["id"]
    record = tmp_path / "state" / "skill-candidates" / broken / "candidate.json"
    document = json.loads(record.read_text())
    record.write_text(json.dumps({**document, "notes": ["x" * 2 * 1024 * 1024]}))
    listed = author.data("skill", "builder", "list")
    assert [one["id"] for one in listed["candidates"]] == [kept]
    assert "more than 1048576 bytes" in listed["broken"][broken]
    assert broken in author.notes
    assert author.error("skill", "builder", "show", broken)["code"] == "skill.candidate_broken"
    discarded = author.data("skill", "builder", "discard", broken)["candidate"]
    assert discarded == {"id": broken, "state": "discarded"}
    assert author.data("skill", "builder", "list")["broken"] == {}


def test_a_run_without_calls_gives_nothing(tmp_path):
    author = Author(tmp_path, ON)
    author.data("call", "echo", "--input", '{"text": "hi"}')
    refused = author.error("skill", "builder", "create", "acme.x", "--from-runs", str(RunId.new()))
    assert refused["code"] == "skill.nothing_to_build"
