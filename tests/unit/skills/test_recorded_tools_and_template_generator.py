import json

import pytest

from fakes.skill_project import Author
from palyra.skills.build.generation import BadGeneration, RecordedCall, generation_request, require_generated
from palyra.skills.build.project import Language, parse_example, project_names
from palyra.skills.build.project_files import template, write_project
from palyra.skills.build.template_generator import LANGUAGES, Behaviour, TemplateGenerator, plan_tools

CALLS = (
    RecordedCall(tool="echo", arguments={"text": "a"}, result={"text": "a"}),
    RecordedCall(tool="echo", arguments={"text": "a"}, result={"text": "a"}),
    RecordedCall(tool="http.fetch", arguments={"url": "https://a.example/x"}, result={"status": 404, "text": "no"}),
    RecordedCall(tool="fs.read", arguments={"path": "n/a.txt"}, result={"content": "é"}),
    RecordedCall(tool="fs.write", arguments={"path": "n/a.txt", "content": "é"}, result={"bytes": 2}),
    RecordedCall(tool="fs.read", arguments={"path": "../a"}, result={"content": "x"}),
    RecordedCall(tool="acme.sum", arguments={"of": [1, 2]}, result={"sum": 3}),
    RecordedCall(tool="acme.sum", arguments={"of": [1]}),
)


def tools():
    return {tool.id: tool for tool in plan_tools(CALLS, ("a.example",))}


def test_each_recorded_tool_becomes_one():
    assert {name: tool.behaviour for name, tool in tools().items()} == {
        "echo": Behaviour.ECHO,
        "http_fetch": Behaviour.FETCH,
        "fs_read": Behaviour.READ,
        "fs_write": Behaviour.WRITE,
        "acme_sum": Behaviour.UNWRITTEN,
    }


def test_examples_are_the_recorded_calls_without_repetition():
    made = tools()
    assert made["echo"].examples == ({"tool": "echo", "input": {"text": "a"}, "output": {"text": "a"}},)
    assert made["http_fetch"].examples[0]["http"][0]["status"] == 404
    # A path that storage would refuse, and a call without a result, give none.
    assert len(made["fs_read"].examples) == 1
    assert len(made["acme_sum"].examples) == 1
    for tool in made.values():
        for example in tool.examples:
            parse_example("x", json.dumps(example).encode())


def test_schemas_come_from_the_arguments():
    assert tools()["acme_sum"].input_schema["properties"] == {"of": {"type": "array", "items": {"type": "integer"}}}


def test_two_names_that_become_one_id_stay_apart():
    calls = [RecordedCall(tool=name, arguments={}) for name in ("a.b", "a_b", "a b")]
    assert [tool.id for tool in plan_tools(calls, ())] == ["a_b", "a_b_2", "a_b_3"]


def generator():
    return TemplateGenerator({one: template(one) for one in LANGUAGES})


@pytest.mark.parametrize("language", LANGUAGES)
def test_generated_projects_are_projects(language):
    request = generation_request(project_names("acme.rec"), language, "", CALLS)
    generated = generator().generate(request)
    manifest = require_generated(generated, request)
    assert [tool.id for tool in manifest.tools] == ["echo", "http_fetch", "fs_read", "fs_write", "acme_sum"]
    assert "acme_sum: write its body" in generated.notes


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_prompt_cannot_leave_its_place(language):
    prompt = 'x */ int evil; /* "\\\n"""\x7f\u2028 ' + "'" * 3
    request = generation_request(project_names("acme.rec"), language, prompt, ())
    generated = generator().generate(request)
    manifest = require_generated(generated, request)
    assert len(manifest.tools) == 1
    main = generated.files["src/main.c" if language is Language.C else "src/main.ts"]
    assert "*/ int evil" not in main


def test_a_language_without_a_generator_is_refused():
    with pytest.raises(BadGeneration, match="python"):
        generator().generate(generation_request(project_names("acme.rec"), Language.PYTHON, "x", ()))


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_taken_over_does_what_was_recorded(language, tmp_path):
    """Built and run: each recorded call that a skill can make by itself gives the recorded result."""
    more = (
        RecordedCall(
            tool="http.fetch",
            arguments={"url": "https://b.example:8443/?q=1"},
            result={"status": 200, "text": 'line\n"two" \\ 😀'},
        ),
        RecordedCall(tool="fs.read", arguments={"path": "empty"}, result={"content": ""}),
    )
    calls = (*(call for call in CALLS if call.tool != "acme.sum"), *more)
    request = generation_request(project_names("acme.rec"), language, "", calls)
    write_project(tmp_path / "rec", generator().generate(request).files)
    tested = Author(tmp_path).data("skill", "test", "--dir", str(tmp_path / "rec"))
    assert (tested["passed"], tested["failed"]) == (6, 0), tested
