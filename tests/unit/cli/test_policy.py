"""`palyra policy`: what a person sees, and the exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palyra.cli.main import run
from palyra.clock import SystemClock
from palyra.ids import Principal
from palyra.journal.chain import JournalLog
from palyra.journal.checkpoint import CHECKPOINT_NAME
from palyra.journal.redaction import Redactor
from palyra.policy.cedar import CedarEngine
from palyra.policy.live_policy import load_bundle
from palyra.policy.request import EntityDirectory, policy_request_to_json, tool_request
from palyra.signing.ed25519 import Ed25519Signer
from palyra.store.event import NewEvent
from palyra.store.sqlite.store import DATABASE_NAME, SqliteStore

NO_BOT = '@id("no-bot") forbid(principal == Agent::"bot", action, resource == Tool::"echo");'

Palyra = Callable[..., tuple[int, Any]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    (tmp_path / "config.toml").write_text('[access]\ngroups = { writers = ["agent:w*"] }\n')
    return tmp_path


@pytest.fixture
def palyra(place: Path, capsys: pytest.CaptureFixture[str]) -> Palyra:
    """Run a command line with ``--json``, and return the exit code and the document."""

    def go(*words: str) -> tuple[int, Any]:
        where = ("--config", str(place / "config.toml"), "--state-dir", str(place / "state"))
        status = run([*where, "policy", *words, "--json"])
        return status, json.loads(capsys.readouterr().out)

    return go


@pytest.fixture
def prose(place: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def go(*words: str) -> str:
        run(["--config", str(place / "config.toml"), "--state-dir", str(place / "state"), "policy", *words])
        captured = capsys.readouterr()
        return captured.out + captured.err

    return go


def test_check_counts_the_policies(palyra: Palyra, place: Path) -> None:
    (place / "policies" / "x.cedar").write_text(NO_BOT)
    status, document = palyra("check")
    assert status == 0
    assert document["data"]["files"][-1] == {"file": "x.cedar", "policies": 1}
    assert document["data"]["policies"] == sum(file["policies"] for file in document["data"]["files"]) > 1


def test_check_shows_errors_with_their_places(palyra: Palyra, prose: Callable[..., str], place: Path) -> None:
    folder = place / "proposed"
    folder.mkdir()
    (folder / "x.cedar").write_text('@id("a")\npermit(principal, action resource);')
    status, document = palyra("check", str(folder))
    assert status == 2
    assert document["error"]["code"] == "policy.bundle_invalid"
    (problem,) = document["error"]["details"]["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == (str(folder / "x.cedar"), 2, 26)
    shown = prose("check", str(folder))
    assert f"{folder / 'x.cedar'}:2:26: unexpected token `resource`" in shown
    assert "permit(principal, action resource);\n    |                          ^" in shown


def test_check_of_a_folder_that_is_not_there(palyra: Palyra, place: Path) -> None:
    assert palyra("check", str(place / "absent"))[0] == 6


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (("--tool", "echo"), "allow"),
        (("--tool", "fs.write"), "needs_approval"),
        (("--tool", "fs.write", "--approved"), "allow"),
        (("--tool", "echo", "--channel", "irc"), "deny"),
    ],
)
def test_explain(palyra: Palyra, words: tuple[str, ...], outcome: str) -> None:
    status, document = palyra("explain", "--principal", "agent:bot", *words)
    assert (status, document["data"]["outcome"]) == (0, outcome)


def test_explain_uses_the_arguments(palyra: Palyra, place: Path) -> None:
    (place / "policies" / "x.cedar").write_text(
        '@id("no-env") forbid(principal, action == Action::"tool.execute", resource)'
        ' when { context.paths.contains(".env") };'
    )
    words = ("explain", "--principal", "agent:bot", "--tool", "fs.read", "--input")
    assert palyra(*words, '{"path": ".env"}')[1]["data"]["determining"][0]["id"] == "no-env"
    assert palyra(*words, '{"path": "a"}')[1]["data"]["outcome"] == "needs_approval"
    assert palyra(*words, '{"pth": "a"}')[0] == 2


def test_explain_says_how_to_lift_a_denial(prose: Callable[..., str]) -> None:
    shown = prose("explain", "--principal", "agent:bot", "--tool", "echo", "--channel", "irc")
    assert "add 'irc' to access.channels: it is then allowed" in shown
    assert 'permit (principal == Agent::"bot"' in shown


def test_explain_of_nonsense(palyra: Palyra) -> None:
    assert palyra("explain", "--principal", "bot", "--tool", "echo")[0] == 2
    assert palyra("explain", "--principal", "agent:bot", "--tool", "nope")[1]["error"]["code"] == "tool.unknown"


def test_expectations(palyra: Palyra, prose: Callable[..., str], place: Path) -> None:
    file = place / "expect.toml"
    file.write_text('version = 1\n[[expect]]\nprincipal = "agent:bot"\ntool = "fs.write"\noutcome = "needs_approval"\n')
    status, document = palyra("test", str(file))
    assert (status, document["data"]["expectations"]) == (0, 1)
    file.write_text(file.read_text().replace("needs_approval", "allow"))
    status, document = palyra("test", str(file))
    assert (status, document["error"]["code"]) == (1, "policy.expectations_failed")
    assert document["error"]["details"]["failures"][0]["line"] == 2
    assert f"{file}:2: agent:bot tool.execute fs.write: expected allow, got needs_approval" in prose("test", str(file))


def test_expectations_of_a_missing_file(palyra: Palyra, place: Path) -> None:
    assert palyra("test", str(place / "absent.toml"))[1]["error"]["code"] == "policy.unreadable_file"


def _journal(place: Path, *tools: str) -> None:
    directory = EntityDirectory.from_lists(principals=("agent:*",), tools=("echo", "fs.*"), channels=("cli",))
    engine = CedarEngine(load_bundle(None, directory))
    state = place / "state"
    state.mkdir(mode=0o700)
    store = SqliteStore.open(
        state / DATABASE_NAME,
        clock=SystemClock(),
        log=JournalLog(
            clock=SystemClock(),
            redactor=Redactor(),
            signer=Ed25519Signer.load_or_create(state / "key"),
            checkpoint_path=state / CHECKPOINT_NAME,
        ),
    )
    for number, tool in enumerate(tools):
        request = tool_request(
            directory.principal(Principal.parse("agent:bot")),
            directory.tool(tool, frozenset(), tool.startswith("fs."), "builtin"),
            directory.channel("cli"),
            workspace="/w",
            run="R",
            argument_bytes=2,
            paths=("x" * 600,) if tool == "fs.long" else (),
        )
        decision = engine.decide(request)
        payload = {
            "outcome": decision.outcome.value,
            "policies": list(decision.policies),
            "policy_request": policy_request_to_json(request),
        }
        event = NewEvent(kind="call.decided", actor="t", call=f"CALL{number}", payload=payload)
        store.transact_blocking(lambda transaction, event=event: transaction.append(event))  # type: ignore[misc]
        store.transact_blocking(lambda transaction: transaction.append(NewEvent(kind="other", actor="t", payload={})))
    store.close()


def test_replay_lists_exactly_what_changes(palyra: Palyra, prose: Callable[..., str], place: Path) -> None:
    _journal(place, "echo", "fs.read", "echo", "fs.long")
    status, document = palyra("replay", "--against", str(place / "policies"))
    assert status == 0
    assert (document["data"]["replayed"], document["data"]["changed"]) == (4, 0)
    assert [finding["kind"] for finding in document["data"]["findings"]] == ["not_replayable"]
    (place / "policies" / "x.cedar").write_text(NO_BOT)
    data = palyra("replay", "--against", str(place / "policies"))[1]["data"]
    changed = [finding for finding in data["findings"] if finding["kind"] == "changed"]
    assert [(each["call_id"], each["old"], each["new"]) for each in changed] == [
        ("CALL0", "allow", "deny"),
        ("CALL2", "allow", "deny"),
    ]
    assert changed[0]["new_policies"] == ["no-bot"]
    first = changed[0]["seq"]
    later = palyra("replay", "--against", str(place / "policies"), "--since", str(first))[1]["data"]
    assert (later["replayed"], later["changed"]) == (3, 1)
    assert "4 calls decided again: 2 change, 1 cannot be" in prose("replay", "--against", str(place / "policies"))


def test_replay_without_a_journal(palyra: Palyra, place: Path) -> None:
    assert palyra("replay", "--against", str(place / "policies"))[0] != 0
