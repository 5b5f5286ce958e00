"""The invocation: things are made when asked for, from the options given."""

import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.config.load import SettingsUnreadable


def test_options_win_over_the_environment(tmp_path: Path) -> None:
    environ = {"PALYRA_CONFIG": "/nowhere/a.toml", "PALYRA_STATE_DIR": "/nowhere/state", "PALYRA_DAEMON__PORT": "1"}
    invocation = Invocation(environ=environ)
    invocation.config_option = tmp_path / "b.toml"
    invocation.config_option.write_text("[daemon]\nport = 2\nhost = '::1'\n")
    invocation.state_dir_option = tmp_path / "state"
    invocation.overrides["daemon.port"] = 3
    assert invocation.config_path == tmp_path / "b.toml"
    assert invocation.settings.daemon.port == 3
    assert invocation.settings.daemon.host == "::1"
    assert invocation.state_path == tmp_path / "state"


def test_reading_paths_and_settings_makes_no_state_directory(tmp_path: Path) -> None:
    invocation = Invocation(environ={"PALYRA_STATE_DIR": str(tmp_path / "state")})
    assert invocation.state_path == tmp_path / "state"
    assert not (tmp_path / "state").exists()
    root = invocation.state_dir.root
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert invocation.state_dir is invocation.state_dir


def test_a_named_settings_file_must_exist(tmp_path: Path) -> None:
    invocation = Invocation(environ={"PALYRA_CONFIG": str(tmp_path / "absent.toml")})
    with pytest.raises(SettingsUnreadable, match="PALYRA_CONFIG"):
        _ = invocation.settings


@click.group()
@json_option
def outer() -> None:
    pass


@outer.command()
@pass_invocation
def inner(invocation: Invocation) -> None:
    invocation.output.data({"n": 1}, lambda _: "text")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["inner"], "text\n"),
        (["--json", "inner"], '{"ok": true, "data": {"n": 1}}\n'),
        (["inner", "--json"], '{"ok": true, "data": {"n": 1}}\n'),
        (["--json", "inner", "--json"], '{"ok": true, "data": {"n": 1}}\n'),
    ],
)
def test_json_means_the_same_before_and_after_the_noun(arguments: list[str], shown: str) -> None:
    assert CliRunner().invoke(outer, arguments).stdout == shown
