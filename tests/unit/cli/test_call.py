import json
from pathlib import Path

import pytest

from fakes.command_line import CommandLine, command_line_in, use_tiny_api
from fakes.tiny_api import TinyApi


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> TinyApi:
    return use_tiny_api(monkeypatch)


@pytest.fixture
def palyra(tmp_path: Path) -> CommandLine:
    return command_line_in(tmp_path)


def test_the_input_travels_as_typed_with_the_default_principal(palyra: CommandLine, api: TinyApi) -> None:
    ended = palyra("call", "echo", "--input", '{"a": 1, "a": 2}')
    assert ended.status == 0
    assert api.seen[-1]["body"] == {
        "tool": "echo",
        "arguments_json": '{"a": 1, "a": 2}',
        "channel": "cli",
        "principal": "agent:cli",
    }


def test_data_on_stdout_and_the_decision_in_one_line_on_stderr(palyra: CommandLine, api: TinyApi) -> None:
    ended = palyra("call", "echo", "--input", "hi\x1b[2J")
    assert ended.out == "hi\\x1b[2J\n"
    assert ended.err == "echo succeeded; allow by p; bundle ab; call 01JCT0000000000000000000CA\n"


def test_every_option_arrives(palyra: CommandLine, api: TinyApi) -> None:
    options = "--principal agent:x --run-id R --session S --wait 1.5 --timeout 0.0001"
    palyra("call", "echo", *options.split())
    body = api.seen[-1]["body"]
    assert (body["principal"], body["run_id"], body["session"]) == ("agent:x", "R", "S")
    assert (body["wait_ms"], body["timeout_ms"], body["arguments_json"]) == (1500, 1, "{}")


def test_json_prints_the_whole_call(palyra: CommandLine, api: TinyApi) -> None:
    ended = palyra("call", "echo", "--json")
    assert ended.document["ok"] is True
    assert ended.document["data"]["field_of_tomorrow"] == 1


def test_a_denial_exits_with_3(palyra: CommandLine, api: TinyApi) -> None:
    ended = palyra("call", "denied")
    assert (ended.status, ended.out) == (3, "")
    assert "call.denied" in ended.err


def test_a_needed_approval_exits_with_4_and_says_the_exact_command(palyra: CommandLine, api: TinyApi) -> None:
    ended = palyra("call", "asked", "--json")
    assert ended.status == 4
    error = ended.document["error"]
    assert error["details"]["approval_id"] == "01AP"
    assert f"--state-dir {palyra.state_dir} approvals approve 01AP`" in error["hint"]


def test_a_failed_call_shows_its_record(palyra: CommandLine, api: TinyApi) -> None:
    ended = palyra("call", "failed", "--json")
    assert ended.status == 1
    assert ended.document["error"]["details"]["call"]["status"] == "failed"
    ended = palyra("call", "failed")
    assert ended.err.startswith("echo failed; allow by p")


def test_a_missing_attestation_is_an_error_after_the_call(palyra: CommandLine, api: TinyApi, tmp_path: Path) -> None:
    ended = palyra("call", "echo", "--attestation", str(tmp_path / "a.json"), "--json")
    assert (ended.status, ended.document["error"]["code"]) == (1, "cli.attestation_not_saved")


@pytest.mark.parametrize("options", [("--wait", "-1"), ("--wait", "601"), ("--timeout", "0"), ("--timeout", "x"), ()])
def test_wrong_options_are_usage_errors(palyra: CommandLine, api: TinyApi, options: tuple[str, ...]) -> None:
    assert palyra("call", *(("echo", *options) if options else ())).status == 2
    assert api.seen == []


def test_without_a_daemon_the_real_thing_runs_embedded(palyra: CommandLine, tmp_path: Path) -> None:
    saved = tmp_path / "attestation.json"
    ended = palyra("call", "echo", "--input", '{"text": "hi"}', "--attestation", str(saved), "--json")
    assert ended.status == 0
    assert ended.document["data"]["result"] == {"text": "hi"}
    assert json.loads(saved.read_text()) == ended.document["data"]["attestation"]
    (tmp_path / "call.json").write_text(ended.out)
    for name in ("attestation.json", "call.json"):
        assert palyra("attest", "verify", str(tmp_path / name)).status == 0
    assert palyra("call", "echo", "--input", '{"text": "a", "text": "b"}').status == 2
    assert palyra("call", "no.such.tool").status == 3


def test_an_approval_from_asking_to_running(palyra: CommandLine) -> None:
    (palyra.state_dir / "workspace").mkdir(parents=True)
    palyra.state_dir.chmod(0o700)
    (palyra.state_dir / "workspace" / "note.txt").write_text("hello")
    read = ("call", "fs.read", "--input", '{"path": "note.txt"}', "--json")
    asked = palyra(*read)
    assert asked.status == 4
    approval = asked.document["error"]["details"]["approval_id"]
    assert '"path": "note.txt"' in palyra("approvals", "show", approval).out
    assert palyra("approvals", "approve", approval, "--yes", "--as", "agent:cli").status == 3
    assert palyra("approvals", "approve", approval, "--yes").status == 0
    assert palyra(*read).status == 0
    assert palyra(*read).status == 4
