"""``palyra tour`` shows what it says, in a place of its own, and stops at the first surprise."""

import json
import tempfile
from pathlib import Path

import pytest

from palyra.cli.commands.tour import Steps, TourSurprised
from palyra.cli.main import run
from palyra.cli.terminal import Output


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALYRA_STATE_DIR", str(tmp_path / "mine"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return tmp_path


@pytest.mark.timeout(600)
def test_every_step_ends_as_it_must_and_nothing_is_left(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tour", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["data"]["steps"]
    printed = {step["step"]: (step["outcome"], step["why"]) for step in steps}
    assert printed["an agent calls echo"] == ("allowed", "policy baseline.allowed-tools")
    assert printed["the agent approves its own request"] == ("refused", "approval.self")
    assert printed["the agent reads outside its workspace"][0] == "refused"
    assert printed["arguments with a duplicate key"] == ("refused", "json.duplicate_key")
    assert printed["a third call in a run with a budget of two"] == ("refused", "budget.exhausted")
    assert printed["approved, it runs in WASM (Tier A)"][0] == "allowed"
    assert printed["a program reads its workspace, isolated (Tier C)"][1].startswith("bubblewrap")
    assert printed["the same as a limited process (Tier B)"][0] == "allowed"
    assert printed["and is pointed at another"] == ("refused", "sandbox.egress_denied")
    assert printed["a call is leased to an attested worker"][0] == "allowed"
    assert printed["a page in a guarded browser"][0] == "allowed"
    assert printed["the browser is pointed elsewhere"][0] == "refused"
    assert printed["somebody edits event 5 and verifies again"] == ("refused", "journal.tampered at seq 5")
    assert {outcome for outcome, _ in printed.values()} == {"allowed", "refused", "waits"}
    assert not (home / "mine").exists(), "the tour does not touch your own state"
    assert list((home / "temporary").iterdir()) == []


def test_people_see_one_line_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps(Output(json=False))
    steps.note("an agent calls echo", "allowed", "policy baseline.allowed-tools")
    steps.note("the agent asks for a shell", "refused", "sandbox.interpreter_denied")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["allowed", "refused"]


def test_a_surprise_ends_the_tour_with_a_failure() -> None:
    steps = Steps(Output(json=True))
    steps.expect(True, "this holds")
    with pytest.raises(TourSurprised, match="that the file is written"):
        steps.expect(False, "the file is written")
