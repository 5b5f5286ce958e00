"""The program: every ending has its exit code and its one document."""

import json
import os
import subprocess
import sys
from typing import Any

import click
import pytest

from palyra.cli import main as program
from palyra.cli.command_table import LazyCommand, load
from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.main import COMMANDS, asks_for_json, root, run, run_as_program
from palyra.errors import Denied, LimitExceeded, NeedsApproval, RemoteError, Unavailable


def _raise(error: BaseException) -> None:
    raise error


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a command named ``end`` into the table, which does what the test wants."""

    def install(action: Any) -> None:
        @click.command("end")
        @click.argument("words", nargs=-1)
        @pass_invocation
        @click.pass_context
        def end(ctx: click.Context, invocation: Invocation, words: tuple[str, ...]) -> None:
            action(ctx, invocation)

        monkeypatch.setattr(program, "_test_end", end, raising=False)
        monkeypatch.setitem(root.table, "end", LazyCommand("palyra.cli.main:_test_end", "End."))

    return install


@pytest.mark.promise("P-output")
@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (Denied("no"), 3, ""),
        (NeedsApproval("ask"), 4, ""),
        (LimitExceeded("much"), 5, ""),
        (Unavailable("gone"), 6, ""),
        (RemoteError("no", remote_code="policy.denied", exit_code=3), 3, "policy.denied"),
        (RuntimeError("/secret/path"), 1, "internal.bug"),
        (click.BadParameter("bad"), 2, "cli.usage"),
        (click.FileError("f", "gone"), 2, "cli.usage"),
        (KeyboardInterrupt(), 130, "cli.interrupted"),
        (click.Abort(), 130, "cli.interrupted"),
    ],
)
@pytest.mark.parametrize("place", [("--json", "end"), ("end", "--json")])
def test_json_endings(
    ending: Any, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, name: str, place: tuple[str, ...]
) -> None:
    ending(lambda ctx, invocation: _raise(error))
    assert run(place) == code
    shown = json.loads(capsys.readouterr().out)
    assert shown["ok"] is False
    assert shown["error"]["code"] == name
    assert "/secret/path" not in json.dumps(shown)


def test_prose_endings_leave_stdout_empty(ending: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ending(lambda ctx, invocation: _raise(Denied("policy says no", hint="ask someone")))
    assert run(["end"]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "policy says no" in shown.err
    assert "hint: ask someone" in shown.err


def test_a_bug_shows_no_traceback_unless_asked(
    ending: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ending(lambda ctx, invocation: _raise(RuntimeError("inner text")))
    monkeypatch.delenv("PALYRA_DEBUG", raising=False)
    assert run(["end"]) == 1
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert "inner text" not in shown.err
    assert "internal.bug" in shown.err
    monkeypatch.setenv("PALYRA_DEBUG", "1")
    assert run(["end", "--json"]) == 1
    shown = capsys.readouterr()
    assert "Traceback" in shown.err
    assert "inner text" in shown.err
    assert json.loads(shown.out)["error"]["code"] == "internal.bug"


def test_a_commands_own_status_is_kept(ending: Any) -> None:
    ending(lambda ctx, invocation: ctx.exit(124))
    assert run(["end"]) == 124
    ending(lambda ctx, invocation: None)
    assert run(["end"]) == 0


@pytest.mark.promise("P-output")
@pytest.mark.parametrize(
    "arguments", [["nosuch", "--json"], ["--json", "config", "shw"], ["config", "show", "--x", "--json"]]
)
def test_usage_mistakes_are_documents_too(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(arguments) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "cli.usage"
    assert "--help" in error["hint"]


def test_json_after_a_double_dash_belongs_to_somebody_else(ending: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert not asks_for_json(["end", "--", "--json"])
    assert asks_for_json(["end", "--json", "--"])
    ending(lambda ctx, invocation: _raise(Denied("no")))
    assert run(["end", "--", "--json"]) == 3
    assert capsys.readouterr().out == ""


def test_no_command_shows_the_help_and_is_a_usage_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Commands:" in shown.err
    assert run(["--json", "config"]) == 2
    assert "palyra config needs a command" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_misspelt_noun_is_recognised(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["aprovals"]) == 2
    assert "Did you mean approvals?" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--version", "--json"], ["--json", "--version"]])
def test_the_version_is_data(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["data"]["version"].count(".") == 2
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("palyra ")


def test_global_options_reach_the_command(ending: Any) -> None:
    seen: list[Invocation] = []
    ending(lambda ctx, invocation: seen.append(invocation))
    assert run(["--config", "c.toml", "--state-dir", "s", "--no-color", "end"]) == 0
    assert (str(seen[0].config_option), str(seen[0].state_dir_option), seen[0].output.color) == ("c.toml", "s", False)


def _python(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env={**os.environ, **environ}, check=False
    )


def test_help_imports_only_click_and_the_standard_library() -> None:
    script = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from palyra.cli.main import run\n"
        "assert run(['--help']) == 0\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print('FOREIGN', sorted(loaded - sys.stdlib_module_names - {'click', 'palyra'}))\n"
        "print('HEAVY', sorted(loaded & {'asyncio', 'sqlite3', 'ssl', 'http', 'socket', 'subprocess'}))\n"
    )
    result = _python("-c", script)
    assert result.returncode == 0, result.stderr
    assert "FOREIGN []" in result.stdout
    assert "HEAVY []" in result.stdout
    assert "approvals" in result.stdout


def test_a_reader_that_goes_away_is_met_with_silence() -> None:
    script = (
        "import os, sys\n"
        "from palyra.cli.main import run\n"
        "reader, writer = os.pipe()\n"
        "os.close(reader)\n"
        "os.dup2(writer, 1)\n"
        "status = run(['config', 'show'])\n"
        "sys.exit(40 + status)\n"
    )
    result = _python("-c", script)
    assert (result.returncode, result.stderr) == (41, "")


def test_the_table_covers_the_nouns_and_each_present_command_matches_its_entry() -> None:
    expected = "up tour doctor call tools approvals policy journal attest token config completion"
    assert set(expected.split()) <= set(COMMANDS)
    for name in ("config", "completion", "doctor"):
        assert load(name, COMMANDS[name]).name == name


def test_another_program_ends_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @click.option("--port", type=int)
    @json_option
    def other(port: int | None) -> None:
        raise Unavailable("no port", hint="choose one")

    assert run_as_program(other, "palyrad", []) == 6
    assert "no port" in capsys.readouterr().err
    assert run_as_program(other, "palyrad", ["--port", "x", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["hint"] == "see `palyrad --help`"
