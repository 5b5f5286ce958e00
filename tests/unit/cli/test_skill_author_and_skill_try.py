import json
import os
import threading
from pathlib import Path

import pytest
import wasmtime

from fakes.skill_project import Author, working_in
from palyra.cli.commands.skills.author import unsigned_place
from palyra.skills.build.project import BuiltModules, assemble
from palyra.skills.build.project_files import read_project
from palyra.skills.package.artifact import SkillArtifact, read_artifact


def test_the_project_is_the_current_folder_by_default(tmp_path):
    author = Author(tmp_path)
    with working_in(author.new("hello", "wat")):
        assert author.data("skill", "build")["file"] == "build/hello-0.1.0.unsigned"
        assert author.data("skill", "test")["passed"] == 1


def test_the_projects_folder_is_named_as_an_argument_or_an_option_and_once(tmp_path):
    author = Author(tmp_path)
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    with working_in(tmp_path):
        assert author.data("skill", "new", "hello", "here", "--lang", "wat")["folder"] == "here"
        archive = author.data("skill", "build", "here")["file"]
        assert author.data("skill", "build", "./here", "--dir", "here/")["file"] == archive
        assert author.data("skill", "test", "here")["passed"] == 1
        assert author.data("skill", "run", "here", "--input", '{"a": 1}')["output"] == {"input": {"a": 1}}
        signed = author.data("skill", "sign", "here", "--key", key)["file"]
        for words in (
            ("new", "hello", "there", "--dir", "here"),
            *((verb, "there", "--dir", "here") for verb in ("build", "test", "run")),
            ("sign", "there", "--dir", "here", "--key", key),
        ):
            status, document = author.run("skill", *words)
            assert status == 2, words
            assert document["error"]["message"] == "DIR is there and --dir is here: give one of them"
        for words in (("verify", "here"), ("install", "here"), ("audit", "./here")):
            status, document = author.run("skill", *words)
            assert status == 2, words
            assert signed in document["error"]["message"]
    assert not (tmp_path / "there").exists()


def test_a_new_project_goes_into_a_folder_of_its_name(tmp_path):
    author = Author(tmp_path)
    with working_in(tmp_path):
        made = author.data("skill", "new", "hello")
    assert (made["folder"], made["language"]) == ("hello", "c")
    assert (tmp_path / "hello" / "src" / "main.c").exists()
    with working_in(tmp_path):
        assert author.error("skill", "new", "hello")["code"] == "skill.project_exists"
        assert author.error("skill", "new", "../x")["code"] == "skill.bad_name"


def test_a_folder_without_a_project_is_a_clear_error(tmp_path):
    error = Author(tmp_path).error("skill", "build", "--dir", str(tmp_path))
    assert error["code"] == "skill.bad_project"
    assert "skill.toml is missing" in error["message"]


def test_run_shows_grants_output_and_usage(tmp_path):
    author = Author(tmp_path)
    folder = str(author.new("hello", "wat"))
    ran = author.data("skill", "run", "--dir", folder, "--input", '{"a": [1]}')
    assert ran["output"] == {"input": {"a": [1]}}
    assert ran["grants"] == []
    assert ran["usage"]["fuel_used"] > 0
    assert "granted: nothing" in author.notes
    (tmp_path / "in.json").write_text('{"b": 2}')
    again = author.data("skill", "run", "--dir", folder, "--tool", "echo", "--input", f"@{tmp_path / 'in.json'}")
    assert again["output"] == {"input": {"b": 2}}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--input", "[]"), "skill.bad_input"),
        (("--input", "{"), "json.not_strict"),
        (("--tool", "other"), "skill.no_such_tool"),
        (("--grant", "http"), None),
        (("--grant", "http:evil.example"), "skill.not_asked_for"),
    ],
)
def test_run_refuses_what_does_not_fit(tmp_path, words, code):
    author = Author(tmp_path)
    folder = str(author.new("hello", "wat"))
    status, document = author.run("skill", "run", "--dir", folder, *words)
    if code is None:
        assert status == 0
    elif code == "json.not_strict":
        assert status == 2
    else:
        assert document["error"]["code"] == code


LOG_AND_TRAP = "(drop (call $log (i32.const 2) (i32.const 64) (i32.const 14))) (unreachable)"


def test_a_file_of_secrets_that_is_no_text_is_a_clear_error(tmp_path):
    author = Author(tmp_path)
    folder = str(author.new("hello", "wat"))
    (tmp_path / "secrets.json").write_bytes(b'{"TOKEN": "\xff"}')
    words = ("--input", "{}", "--secrets", str(tmp_path / "secrets.json"))
    assert author.error("skill", "run", "--dir", folder, *words)["code"] == "cli.source_unreadable"


def test_a_trial_keeps_storage_in_the_build_folder_and_grants_no_more_than_asked(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "c")
    manifest = folder / "skill.toml"
    manifest.write_text(
        manifest.read_text()
        .replace('"name": {"type": "string", "maxLength": 200}', '"name": {"type": "string"}')
        .replace("[compat]", '[capabilities.filesystem]\nwrite_roots = ["names"]\n\n[compat]')
    )
    source = folder / "src" / "main.c"
    source.write_text(
        source.read_text().replace(
            "  struct out greeting",
            '  if (storage_put(storage_handle(0), "last", 4, name.at, name.length) < 0) {\n'
            '    fail("not stored");\n    return;\n  }\n  struct out greeting',
        )
    )
    ran = author.data("skill", "run", "--dir", str(folder), "--input", '{"name": "Ada"}')
    assert ran["grants"] == ["storage:names as handle 30000"]
    assert (folder / "build" / "storage" / "names" / "last").read_text() == "Ada"
    refused = author.error("skill", "run", "--dir", str(folder), "--grant", "http", "--input", '{"name": "Ada"}')
    assert (refused["code"], refused["message"]) == ("wasm.failed", "not stored")
    assert "journal" not in refused["hint"], "a trial is in no journal"


def test_what_a_skill_said_before_it_failed_is_shown(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    source = folder / "src" / "main.wat"
    log = '(import "palyra:plugins/host-capabilities@0.1.0" "log" (func $log (param i32 i32 i32) (result i32)))'
    source.write_text(
        source.read_text()
        .replace("(module", f'(module {log} (data (i32.const 64) "so far so good")', 1)
        .replace(
            "(local $at i32)\n    (local.set $at (call", f"(local $at i32) {LOG_AND_TRAP}\n    (local.set $at (call"
        )
    )
    assert author.error("skill", "run", "--dir", str(folder))["code"] == "wasm.trap"
    assert "warning: so far so good" in author.notes
    _, document = author.run("skill", "test", "--dir", str(folder))
    assert "warning: so far so good" in document["data"]["examples"][0]["problems"]


def test_a_failing_example_is_told_with_what_came_instead(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    (folder / "examples" / "wrong.json").write_text(json.dumps({"tool": "echo", "input": {}, "output": {"x": 1}}))
    status, document = author.run("skill", "test", "--dir", str(folder))
    assert status == 1
    (problem,) = next(one["problems"] for one in document["data"]["examples"] if one["name"] == "wrong.json")
    assert problem == 'expected {"x":1}, got {"input":{}}'


def test_signing_needs_a_build_and_a_key(tmp_path):
    author = Author(tmp_path)
    folder = str(author.new("hello", "wat"))
    key = str(tmp_path / "k.key")
    assert author.error("skill", "sign", "--dir", folder, "--key", key)["code"] == "signing_key.unavailable"
    author.data("skill", "keygen", key)
    assert author.error("skill", "sign", "--dir", folder, "--key", key)["code"] == "skill.not_built"


def plant(folder: Path) -> SkillArtifact:
    """Make an archive that claims the project's sources, with a module that was not built of them."""
    project = read_project(folder)
    text = project.sources["src/main.wat"].decode().replace("(module", '(module (func (export "evil"))', 1)
    built = BuiltModules(
        modules={"hello.wasm": bytes(wasmtime.wat2wasm(text))},
        ingredients=(),
        arguments={"hello.wasm": ("wat2wasm", "src/main.wat")},
    )
    archive = assemble(
        project.manifest_bytes, project.plan, built, sources=project.sources, assets=project.assets, origin=None
    )
    place = unsigned_place(project)
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(archive.raw)
    return archive


def modules_of(file: str | Path) -> dict[str, bytes]:
    return read_artifact(Path(file).read_bytes()).modules


@pytest.mark.promise("P-skill-origin")
@pytest.mark.parametrize("built_before", [True, False])
def test_a_planted_archive_is_neither_tested_nor_signed(tmp_path, built_before):
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    honest = {"hello.wasm": bytes(wasmtime.wat2wasm((folder / "src" / "main.wat").read_text()))}
    if built_before:
        assert modules_of(author.data("skill", "build", "--dir", str(folder))["file"]) == honest
    assert plant(folder).modules != honest
    signed = author.data("skill", "sign", "--dir", str(folder), "--key", key)
    assert "building again" in author.notes
    assert modules_of(signed["file"]) == honest
    plant(folder)
    assert author.data("skill", "test", "--dir", str(folder))["passed"] == 1
    assert "building again" in author.notes
    assert modules_of(unsigned_place(read_project(folder))) == honest
    assert author.data("skill", "sign", "--dir", str(folder), "--key", key) == signed
    assert "building again" not in author.notes


def test_a_pipe_in_the_place_of_an_archive_is_not_waited_for(tmp_path):
    """A pipe came with a stranger's project. Opening it for reading would wait for a writer for ever."""
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    (folder / "build").mkdir()
    pipe = folder / "build" / "hello-0.1.0.unsigned"
    os.mkfifo(pipe)
    os.link(pipe, tmp_path / "pipe")
    heard = threading.Event()

    def listen():
        os.close(os.open(tmp_path / "pipe", os.O_WRONLY))
        heard.set()

    listening = threading.Thread(target=listen)
    listening.start()
    try:
        assert author.data("skill", "test", "--dir", str(folder))["failed"] == 0
        assert not heard.is_set() and pipe.is_file()
    finally:
        os.close(os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK))
        listening.join()


def test_the_note_of_one_project_does_not_vouch_for_another(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    author.data("skill", "build", "--dir", str(folder))
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    moved = tmp_path / "moved"
    folder.rename(moved)
    author.data("skill", "sign", "--dir", str(moved), "--key", key)
    assert "building again" in author.notes


def test_another_order_of_the_sources_is_another_project(tmp_path):
    """The first source is what is compiled; the provenance lists them without order."""
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    plan = folder / "build.toml"
    other = folder / "src" / "other.wat"
    other.write_text((folder / "src" / "main.wat").read_text().replace("(module", '(module (func (export "x"))', 1))
    text = plan.read_text()
    plan.write_text(text.replace('["src/main.wat"]', '["src/other.wat", "src/main.wat"]'))
    author.data("skill", "build", "--dir", str(folder))
    plan.write_text(text.replace('["src/main.wat"]', '["src/main.wat", "src/other.wat"]'))
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    assert author.error("skill", "sign", "--dir", str(folder), "--key", key)["code"] == "skill.not_built"


def test_without_a_private_place_for_notes_what_is_signed_is_built_again(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    digest = author.data("skill", "build", "--dir", str(folder))["digest"]
    author.data("skill", "sign", "--dir", str(folder), "--key", key)
    assert "building again" not in author.notes
    (tmp_path / "state" / "skill-builds").chmod(0o777)
    author.data("skill", "sign", "--dir", str(folder), "--key", key)
    assert "building again" in author.notes
    assert author.data("skill", "build", "--dir", str(folder))["digest"] == digest


def test_a_build_does_not_write_through_a_link_in_a_strangers_project(tmp_path):
    author = Author(tmp_path)
    folder = author.new("hello", "wat")
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (folder / "build").mkdir()
    for name in (".hello-0.1.0.unsigned.part", "hello-0.1.0.unsigned"):
        (folder / "build" / name).symlink_to(mine)
    author.data("skill", "build", "--dir", str(folder))
    assert mine.read_text() == "mine"
    assert not (folder / "build" / "hello-0.1.0.unsigned").is_symlink()
