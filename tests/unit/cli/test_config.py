"""``palyra config``: what is in force and where it came from."""

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.commands.config import as_toml
from palyra.cli.main import run
from palyra.daemon.settings import Settings


@pytest.fixture(autouse=True)
def _own_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("PALYRA_CONFIG", "PALYRA_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_show_prints_a_settings_file_that_means_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PALYRA_ACCESS__GROUPS", '{"odd name" = ["user:a"]}')
    monkeypatch.setenv("PALYRA_WORKSPACE__ROOT", '/srv/a "quoted" \\ 🐈 ü')
    binding = '[{header_name = "X-Key", secret_ref = "global/k", hosts = ["a.example"], prefix = "Bearer "}]'
    monkeypatch.setenv("PALYRA_EGRESS__BINDINGS", binding)
    monkeypatch.setenv("PALYRA_EGRESS__STATIC_HOSTS", '{"a.example" = ["10.0.0.1"]}')
    assert run(["config", "show"]) == 0
    text = capsys.readouterr().out
    path = tmp_path / "saved.toml"
    path.write_text(text)
    monkeypatch.delenv("PALYRA_ACCESS__GROUPS")
    monkeypatch.delenv("PALYRA_WORKSPACE__ROOT")
    monkeypatch.delenv("PALYRA_EGRESS__BINDINGS")
    monkeypatch.delenv("PALYRA_EGRESS__STATIC_HOSTS")
    assert run(["--config", str(path), "config", "show"]) == 0
    assert capsys.readouterr().out == text
    assert tomllib.loads(text)["egress"]["bindings"][0]["prefix"] == "Bearer "
    assert tomllib.loads(text)["workspace"]["root"] == '/srv/a "quoted" \\ 🐈 ü'


def test_show_as_json_is_the_whole_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data == {"settings": json.loads(msgspec.json.encode(Settings()))}


def test_origins_are_shown_in_both_forms(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "c.toml"
    path.write_text("\n[daemon]\nport = 9\n")
    monkeypatch.setenv("PALYRA_TOOLS__ALLOWED", "echo")
    assert run(["--config", str(path), "config", "show", "--origin"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["daemon.port"].split() == ["daemon.port", "9", f"{path}:3"]
    assert lines["tools.allowed"].endswith("PALYRA_TOOLS__ALLOWED")
    assert lines["daemon.host"].endswith("default")
    assert run(["--config", str(path), "--json", "config", "show", "--origin"]) == 0
    origins = json.loads(capsys.readouterr().out)["data"]["origins"]
    assert origins["daemon.port"] == {"kind": "file", "where": str(path), "line": 3}
    assert origins["tools.allowed"]["kind"] == "environment"


def test_a_bad_file_is_reported_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[daemon]\nprot = 9\n")
    assert run(["--config", str(path), "--json", "config", "show"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "config.unknown_key"
    assert f"{path}:2" in error["message"]
    assert "daemon.port" in error["message"]


def test_path_names_every_place_and_makes_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["config", "path", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["config_file"] == str(tmp_path / "config/palyra/config.toml")
    assert data["config_file_exists"] is False
    assert data["state_dir"] == str(tmp_path / "state/palyra")
    assert data["workspace_root"] == str(tmp_path / "state/palyra/workspace")
    assert run(["--state-dir", str(tmp_path / "mine"), "config", "path"]) == 0
    text = capsys.readouterr().out
    assert "not written yet" in text
    assert f"{tmp_path / 'mine'}" in text
    assert "--state-dir" in text
    assert list(tmp_path.iterdir()) == []


values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_values_are_written_as_toml_that_reads_back(value: Any) -> None:
    assert tomllib.loads(f"value = {as_toml(value)}")["value"] == value
