"""``palyra doctor``: the report in both forms, and the exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from palyra.cli.main import run


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    config = tmp_path / "config.toml"
    config.write_text("[daemon]\nport = 1\n")
    monkeypatch.delenv("PALYRA_POLICY__DIR", raising=False)

    def examine(*arguments: str) -> tuple[int, Any]:
        state = tmp_path / "state"
        code = run(["--config", str(config), "--state-dir", str(state), "doctor", *arguments])
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if "--json" in arguments else shown

    return examine


def test_this_machine_is_ready_and_nothing_is_made(doctor: Any, tmp_path: Path) -> None:
    code, document = doctor("--json")
    assert (code, document["ok"]) == (0, True)
    checks = {check["name"]: check for check in document["data"]["checks"]}
    required = {name for name, check in checks.items() if check["required"]}
    assert required == {
        "python",
        "state directory",
        "durable writes",
        "sqlite",
        "clock",
        "policy bundle",
        "openat2",
    }
    assert all(checks[name]["status"] != "missing" for name in required)
    assert checks["daemon"]["status"] == "warn"
    assert all(check["evidence"] and check["purpose"] for check in checks.values())
    assert all(check["fix"] for check in checks.values() if check["status"] != "ok")
    assert not (tmp_path / "state").exists()


def test_the_text_form_has_every_check_and_its_fix(doctor: Any) -> None:
    code, shown = doctor()
    assert code == 0
    for name in ("landlock", "seccomp", "user namespaces", "bubblewrap", "cgroups", "openat2"):
        assert f"\n{name} " in shown.out
    assert "start one with `palyra up`" in shown.out
    assert shown.err == ""


def test_an_exposed_state_directory_makes_it_exit_6(doctor: Any, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    code, document = doctor("--json")
    assert (code, document["ok"]) == (6, False)
    assert document["error"]["code"] == "doctor.not_ready"
    assert "state directory" in document["error"]["message"]
    blamed = [check for check in document["error"]["details"]["checks"] if check["status"] == "missing"]
    assert f"chmod 700 {tmp_path / 'state'}" in [check["fix"] for check in blamed]
    code, shown = doctor()
    assert code == 6
    assert "missing (required)" in shown.out
    assert "doctor.not_ready" in shown.err


def test_a_broken_policy_file_makes_it_exit_6(doctor: Any, tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.cedar").write_text("permit (principal, action, resource")
    code, document = doctor("--json")
    assert code == 6
    assert document["error"]["message"].endswith("policy bundle")
