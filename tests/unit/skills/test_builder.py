import msgspec
import pytest

from palyra.skills.build.generation import (
    BadGeneration,
    Candidate,
    CandidateClosed,
    CandidateState,
    Generated,
    NothingToBuild,
    NotWhatWasReviewed,
    RecordedCall,
    files_digest,
    generation_request,
    require_generated,
    require_reviewed,
)
from palyra.skills.build.project import BadProject, Language, project_names
from palyra.skills.build.project_files import template
from palyra.skills.build.template_generator import LANGUAGES, TemplateGenerator
from palyra.skills.package.toml_reader import MalformedManifest

FETCH = RecordedCall(tool="http.fetch", arguments={"url": "https://a.example/x"}, result={"status": 200, "text": "hi"})
NAMES = project_names("acme.rec", "acme")


def request_of(*calls, prompt="", language=Language.C):
    return generation_request(NAMES, language, prompt, calls)


def generated_for(request):
    return TemplateGenerator({one: template(one) for one in LANGUAGES}).generate(request)


def with_file(generated, path, change):
    return msgspec.structs.replace(generated, files={**generated.files, path: change(generated.files.get(path, ""))})


def test_what_the_built_in_generator_makes_is_taken():
    request = request_of(FETCH)
    manifest = require_generated(generated_for(request), request)
    assert manifest.capabilities.http_egress_allowlist == ("a.example",)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/cron.d/x", ".git/config", "a/../b", "a\\b", "SKILL.toml", "a/b/c/d/e/f"]
)
def test_a_generator_writes_nowhere_but_into_its_candidate(path):
    request = request_of(FETCH)
    with pytest.raises(BadGeneration, match="named"):
        require_generated(with_file(generated_for(request), path, lambda _: "x"), request)


@pytest.mark.parametrize("path", ["src", "SRC", "skill.toml/a", "src/main.c/a/b"])
def test_no_file_of_a_generator_is_a_folder_as_well(path):
    request = request_of(FETCH)
    with pytest.raises(BadGeneration, match="a folder as well"):
        require_generated(with_file(generated_for(request), path, lambda _: "x"), request)


@pytest.mark.parametrize("path", ["build/main.c", "Build/main.c", "build./main.c", "BUILD"])
def test_a_generator_writes_nothing_where_no_reviewer_looks(path):
    request = request_of(FETCH)
    with pytest.raises(BadGeneration, match="may not be in build/") as refused:
        require_generated(with_file(generated_for(request), path, lambda _: "x"), request)
    assert "no review shows it" in refused.value.hint


@pytest.mark.parametrize("path", ["./build/main.c", "src/../build/main.c", "build//main.c", "build/"])
def test_other_spellings_of_that_place_are_no_names_at_all(path):
    request = request_of(FETCH)
    with pytest.raises(BadGeneration, match="named"):
        require_generated(with_file(generated_for(request), path, lambda _: "x"), request)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('["a.example"]', '["a.example", "evil.example"]', "host evil.example"),
        ("read_roots = []", 'read_roots = ["files"]', "storage files"),
        ("write_roots = []", 'write_roots = ["files"]', "for writing"),
        ("[capabilities]", '[capabilities]\nsecrets = ["token"]', "secret"),
        ("[capabilities]", '[capabilities]\nchannels = ["news"]', "channel news"),
        ("[capabilities]", '[capabilities]\nnode = ["camera"]', "ability camera"),
        ('"acme.rec"', '"acme.other"', "calls itself"),
        ('publisher = "acme"', 'publisher = "other"', "calls itself"),
    ],
)
def test_a_generator_asks_for_nothing_that_was_not_recorded(old, new, words):
    request = request_of(FETCH)
    generated = with_file(generated_for(request), "skill.toml", lambda text: text.replace(old, new))
    with pytest.raises(BadGeneration, match=words):
        require_generated(generated, request)


def test_a_generated_project_is_parsed_as_any():
    request = request_of(FETCH)
    generated = generated_for(request)
    with pytest.raises(MalformedManifest):
        require_generated(with_file(generated, "skill.toml", lambda text: text + "\nwhat = 1\n"), request)
    with pytest.raises(BadProject):
        require_generated(with_file(generated, "examples/x.json", lambda _: "{}"), request)
    with pytest.raises(BadGeneration, match="asked for"):
        require_generated(with_file(generated, "build.toml", lambda text: text.replace('"c"', '"wat"')), request)
    with pytest.raises(BadGeneration, match="names"):
        without = {path: text for path, text in generated.files.items() if path != "src/main.c"}
        require_generated(msgspec.structs.replace(generated, files=without), request)
    with pytest.raises(BadGeneration, match="0 files"):
        require_generated(Generated(files={}), request)
    with pytest.raises(BadGeneration, match=r"no skill\.toml"):
        require_generated(Generated(files={"a": ""}), request)


@pytest.mark.parametrize("notes", [("x",) * 401, ("x" * 50_000, "x" * 50_001)])
def test_a_generator_does_not_flood_the_reviewer_with_notes(notes):
    request = request_of(FETCH)
    generated = generated_for(request)
    require_generated(msgspec.structs.replace(generated, notes=("x" * 250,) * 400), request)
    with pytest.raises(BadGeneration, match="at most 400 notes"):
        require_generated(msgspec.structs.replace(generated, notes=notes), request)


def test_there_must_be_something_to_build():
    with pytest.raises(NothingToBuild):
        request_of(prompt="  ")
    with pytest.raises(NothingToBuild):
        request_of(*[FETCH] * 201)


def candidate():
    return Candidate(id="1", skill_id="acme.rec", language=Language.C, generator="g", created_ms=1, prompt="p")


def test_a_candidate_is_closed_once():
    promoted = candidate().closed(CandidateState.PROMOTED, "d")
    assert (promoted.state, promoted.artifact_digest) == (CandidateState.PROMOTED, "d")
    with pytest.raises(CandidateClosed):
        promoted.closed(CandidateState.DISCARDED)


def test_the_origin_does_not_repeat_the_prompt():
    assert set(candidate().origin()) == {"generator", "candidate", "prompt_sha256"}


def test_what_is_promoted_is_what_was_reviewed():
    files = {"a": b"1", "b": b"2"}
    require_reviewed(files_digest(files), files)
    for other in ({"a": b"1"}, {"a": b"12", "b": b""}, {"a": b"1", "c": b"2"}):
        with pytest.raises(NotWhatWasReviewed):
            require_reviewed(files_digest(files), other)
