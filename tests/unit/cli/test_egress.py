"""``palyra egress check``: the verdict, the way to it, and the exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from palyra.cli.main import run
from palyra.egress.proxy import resolver

SETTINGS = """
[sandbox]
allowed_hosts = ["ok.example:443"]

[egress]
allowed_hosts = ["ok.example", "*.sub.example", "mixed.example", "db.example:5432", "gone.example", "10.0.0.5"]
private_targets = ["db.example:5432"]

[egress.static_hosts]
"ok.example" = ["93.184.216.34", "2a00::1"]
"mixed.example" = ["93.184.216.34", "127.0.0.1"]
"db.example" = ["10.0.0.7"]

[[egress.bindings]]
header_name = "Authorization"
secret_ref = "global/key"
hosts = ["ok.example"]
"""


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    config = tmp_path / "config.toml"
    config.write_text(SETTINGS)

    def no_network(name: str) -> tuple[str, ...]:
        asked.append(name)
        raise OSError(0, "there is no network in this test")

    asked: list[str] = []
    monkeypatch.setattr(resolver.SystemResolver.__init__, "__kwdefaults__", {**_defaults(), "lookup": no_network})

    def ask(*arguments: str) -> tuple[int, Any, Any]:
        code = run(["--config", str(config), "--state-dir", str(tmp_path / "state"), "egress", "check", *arguments])
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if "--json" in arguments else shown, asked

    return ask


def _defaults() -> dict[str, Any]:
    return dict(resolver.SystemResolver.__init__.__kwdefaults__ or {})


def test_what_is_allowed_is_explained_step_by_step(check: Any, tmp_path: Path) -> None:
    code, document, asked = check("https://OK.example./x", "--json")
    assert (code, document["ok"], document["data"]["verdict"], asked) == (0, True, "allowed", [])
    steps = [(step["name"], step["outcome"]) for step in document["data"]["steps"]]
    assert steps == [
        ("target", "passed"),
        ("rule", "passed"),
        ("resolution", "passed"),
        ("address 93.184.216.34", "passed"),
        ("address 2a00::1", "passed"),
        ("credential", "passed"),
    ]
    assert not (tmp_path / "state").exists()


def test_the_text_form_shows_steps_and_verdict(check: Any) -> None:
    code, shown, _ = check("https://mixed.example/")
    assert code == 3
    assert "loopback" in shown.out and "refused: https://mixed.example/" in shown.out
    assert "egress.address_forbidden" in shown.err
    code, shown, _ = check("tcp://db.example:5432")
    assert code == 0 and "opened for this target" in shown.out and "allowed: tcp://db.example:5432" in shown.out


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://evil.example", "egress.host_not_allowed"),
        ("https://sub.example", "egress.host_not_allowed"),
        ("http://ok.example:8080", "egress.host_not_allowed"),
        ("https://mixed.example", "egress.address_forbidden"),
        ("http://10.0.0.5", "egress.address_forbidden"),
        ("http://127.1", "egress.odd_target"),
        ("http://a@ok.example", "egress.odd_target"),
        ("tcp://db.example", "egress.odd_target"),
        ("ftp://ok.example", "egress.scheme_not_allowed"),
        ("https://gone.example", "egress.name_unresolved"),
    ],
)
def test_a_refusal_ends_with_3_and_its_code(check: Any, url: str, code: str) -> None:
    status, document, _ = check(url, "--json")
    assert (status, document["ok"], document["error"]["code"]) == (3, False, code)
    steps = document["error"]["details"]["steps"]
    assert [step["detail"] for step in steps if step["outcome"] == "refused"]


def test_a_name_is_looked_up_only_when_a_rule_allows_it_and_only_when_asked(check: Any) -> None:
    assert check("https://secret-data.evil.example")[2] == []
    status, document, asked = check("https://a.sub.example", "--no-resolve", "--json")
    assert (status, document["data"]["verdict"], asked) == (0, "undecided", [])
    assert check("https://a.sub.example")[2] == ["a.sub.example."]


def test_programs_are_judged_by_their_own_list(check: Any) -> None:
    assert check("https://ok.example", "--programs")[0] == 0
    assert check("http://ok.example", "--programs")[0] == 3
    assert check("https://mixed.example", "--programs", "--no-resolve")[0] == 3


@pytest.mark.parametrize("arguments", [("ok.example",), ("",), (), ("https://a", "https://b")])
def test_what_is_no_question_ends_with_2(check: Any, arguments: tuple[str, ...]) -> None:
    assert check(*arguments)[0] == 2
