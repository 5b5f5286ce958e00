import json
import os
import sys
import textwrap

import pytest

from palyra.skills.build.command_generator import MAX_ANSWER_BYTES, PROTOCOL, CommandGenerator, GeneratorFailed
from palyra.skills.build.generation import BadGeneration, generation_request
from palyra.skills.build.project import Language, project_names

REQUEST = generation_request(project_names("acme.rec"), Language.C, "count words", ())


def command(tmp_path, body, timeout=20.0):
    program = tmp_path / "generator.py"
    program.write_text("import json, os, sys, time\n" + textwrap.dedent(body))
    return CommandGenerator((sys.executable, str(program)), timeout_seconds=timeout, environ=os.environ, wit="world")


def test_the_request_goes_in_and_the_project_comes_out(tmp_path):
    generator = command(
        tmp_path,
        f"""
        asked = json.load(sys.stdin)
        assert asked["protocol"] == "{PROTOCOL}" and asked["wit"] == "world"
        files = {{"seen.txt": asked["request"]["prompt"]}}
        json.dump({{"protocol": asked["protocol"], "files": files, "notes": ["n"]}}, sys.stdout)
        """,
    )
    generated = generator.generate(REQUEST)
    assert generated.files == {"seen.txt": "count words"}
    assert generated.notes == ("n",)
    assert generator.name.startswith("command:python")


@pytest.mark.parametrize(
    ("body", "problem", "words"),
    [
        ("print('hello')", BadGeneration, "not JSON"),
        ("print('{}')", BadGeneration, "does not begin"),
        (f"print(json.dumps({{'protocol': '{PROTOCOL}', 'files': 3}}))", BadGeneration, "files"),
        (f"print(json.dumps({{'protocol': '{PROTOCOL}', 'files': {{}}, 'x': 1}}))", BadGeneration, "x"),
        (f"sys.stdout.write('x' * {MAX_ANSWER_BYTES + 10})", BadGeneration, "more than"),
        ("sys.exit('no model')", GeneratorFailed, "no model"),
    ],
)
def test_bad_answers_are_refused(tmp_path, body, problem, words):
    with pytest.raises(problem, match=words):
        command(tmp_path, body).generate(REQUEST)


def test_a_program_that_takes_too_long_is_ended_with_its_children(tmp_path):
    body = f"""
    if os.fork() == 0:
        open({str(tmp_path / "child")!r}, "w").write(str(os.getpid()))
        time.sleep(600)
    while not os.path.exists({str(tmp_path / "child")!r}):
        time.sleep(0.01)
    time.sleep(600)
    """
    with pytest.raises(GeneratorFailed, match="longer than"):
        command(tmp_path, body, timeout=1.5).generate(REQUEST)
    child = int((tmp_path / "child").read_text())
    with pytest.raises(ProcessLookupError):
        while True:
            # A zombie that nobody reaped yet is gone as well.
            if json.loads(json.dumps(_state(child))) == "Z":
                raise ProcessLookupError
            os.kill(child, 0)


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError as error:
        raise ProcessLookupError from error


def test_a_program_that_is_not_there_is_a_clear_error(tmp_path):
    generator = CommandGenerator((str(tmp_path / "none"),), timeout_seconds=1, environ={})
    with pytest.raises(GeneratorFailed, match="cannot start"):
        generator.generate(REQUEST)
