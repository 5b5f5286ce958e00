"""``palyra doctor``: the report in both forms, and the exit code."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.loopback import serving
from fakes.tiny_api import TOKEN, TinyApi
from palyra.cli.commands.doctor import running_daemon
from palyra.cli.invocation import Invocation
from palyra.cli.main import run
from palyra.doctor.attacks import runner
from palyra.doctor.attacks.attempt import AttackClass
from palyra.doctor.attacks.catalogue import ATTEMPTS
from palyra.doctor.attacks.verdict import AttackReport, Result, Verdict
from palyra.doctor.report import Status
from palyra.sandbox.domain.profile import SandboxTier


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
    assert checks["webassembly"]["evidence"].endswith("a guest answered 42")
    assert checks["browser"]["status"] == "ok"
    assert checks["browser"]["evidence"].endswith("up: flags, namespace, guard, account, folders, own sandbox")
    assert all(check["evidence"] and check["purpose"] for check in checks.values())
    assert all(check["fix"] for check in checks.values() if check["status"] != "ok")
    assert not (tmp_path / "state").exists()


def test_the_text_form_has_every_check_and_its_fix(doctor: Any) -> None:
    code, shown = doctor()
    assert code == 0
    for name in (
        *("landlock", "seccomp", "user namespaces", "bubblewrap", "cgroups", "openat2", "other namespaces"),
        *("webassembly", "browser"),
    ):
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


def verdict(name: str, result: Result, tier: SandboxTier = SandboxTier.C, *, promised: bool = True) -> Verdict:
    return Verdict(
        id=name,
        tier=tier,
        kind=AttackClass.KERNEL,
        title=f"try {name}",
        result=result,
        layer="seccomp",
        evidence="EPERM",
        promised=promised,
    )


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a canned report in place of the attempts, which tests/security makes for real."""
    asked: list[Any] = []

    def give(*verdicts: Verdict) -> list[Any]:
        async def attack(tiers: Any, *, protected_names: Any, progress: Any) -> AttackReport:
            asked.append((tiers, protected_names))
            progress(tiers[0], ATTEMPTS[0], 1, 9)
            progress(tiers[0], ATTEMPTS[0], 2, 9)
            return AttackReport(verdicts=verdicts, user=0, seconds=0.1)

        monkeypatch.setattr(runner, "attack", attack)
        return asked

    return give


def test_an_attack_that_was_stopped_is_listed_by_class(doctor: Any, attacked: Any) -> None:
    asked = attacked(
        verdict("kernel.a", Result.BLOCKED), verdict("kernel.b", Result.NOT_BLOCKED, SandboxTier.B, promised=False)
    )
    code, shown = doctor("--attack")
    assert code == 0
    assert shown.err == "tier c: attempt 1 of 9, files\n"
    assert "Kernel\n" in shown.out
    assert "not blocked (not promised)" in shown.out
    assert "Tier C: 1 blocked, 0 not blocked" in shown.out
    assert ".git/hooks" in asked[0][1]
    code, document = doctor("--attack", "--tier", "b", "--json")
    assert (code, document["ok"], len(document["data"]["attempts"])) == (0, True, 2)
    assert asked[1][0] == (SandboxTier.B,)


def test_an_attack_that_got_through_makes_it_exit_1_with_the_whole_list(doctor: Any, attacked: Any) -> None:
    attacked(verdict("kernel.a", Result.BLOCKED), verdict("kernel.b", Result.NOT_BLOCKED))
    code, document = doctor("--attack", "--json")
    assert (code, document["error"]["code"]) == (1, "doctor.escaped")
    assert [each["result"] for each in document["error"]["details"]["attempts"]] == ["blocked", "not blocked"]
    code, shown = doctor("--attack")
    assert code == 1
    assert "try kernel.b" in shown.out
    assert "kernel.b (tier c)" in shown.err


def test_where_nothing_could_be_tried_it_exits_6(doctor: Any, attacked: Any) -> None:
    attacked(verdict("kernel.a", Result.NOT_APPLICABLE))
    assert doctor("--attack")[0] == 6


def test_a_tier_without_an_attack_is_a_mistake(doctor: Any) -> None:
    assert doctor("--tier", "b")[0] == 2


def test_a_daemon_that_has_not_read_the_settings_is_told_of(tmp_path: Path) -> None:
    invocation = Invocation(environ={})
    invocation.config_option, invocation.state_dir_option = tmp_path / "config.toml", tmp_path
    invocation.config_path.write_text("")
    with serving(TinyApi().app) as url:
        (tmp_path / "daemon.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        (tmp_path / "operator.token").write_text(TOKEN)
        os.utime(tmp_path / "daemon.json", (2_000_000_000, 2_000_000_000))
        assert running_daemon(invocation).status is Status.OK
        os.utime(tmp_path / "daemon.json", (1_000_000_000, 1_000_000_000))
        found = running_daemon(invocation)
    assert (found.status, "start it again" in found.fix) == (Status.WARN, True)
