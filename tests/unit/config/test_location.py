"""Locations: flag, then variable, then the XDG place."""

from pathlib import Path

import pytest

from palyra.config.load import SettingsUnreadable, locate
from palyra.daemon.settings import Settings
from palyra.policy.settings import PolicySettings
from palyra.workspace.settings import WorkspaceSettings


@pytest.fixture(autouse=True)
def _xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_default_places_are_xdg(tmp_path: Path) -> None:
    places = locate({})
    assert places.config_file == tmp_path / "config/palyra/config.toml"
    assert places.state_dir == tmp_path / "state/palyra"
    assert places.config_named_by == places.state_dir_named_by == "default"


def test_without_xdg_variables_the_home_directory_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("XDG_STATE_HOME")
    places = locate({})
    assert places.config_file == tmp_path / "home/.config/palyra/config.toml"
    assert places.state_dir == tmp_path / "home/.local/state/palyra"


def test_variables_win_over_xdg_and_flags_over_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"PALYRA_CONFIG": "/v/c.toml", "PALYRA_STATE_DIR": "~/s"}
    places = locate(environ)
    assert (places.config_file, places.config_named_by) == (Path("/v/c.toml"), "PALYRA_CONFIG")
    assert (places.state_dir, places.state_dir_named_by) == (tmp_path / "home/s", "PALYRA_STATE_DIR")
    monkeypatch.chdir(tmp_path)
    places = locate(environ, config_option=Path("c.toml"), state_dir_option=Path("s"))
    assert (places.config_file, places.config_named_by) == (tmp_path / "c.toml", "--config")
    assert (places.state_dir, places.state_dir_named_by) == (tmp_path / "s", "--state-dir")


def test_an_empty_variable_is_no_choice() -> None:
    assert locate({"PALYRA_CONFIG": "", "PALYRA_STATE_DIR": ""}).config_named_by == "default"


def test_only_the_default_file_may_be_absent(tmp_path: Path) -> None:
    assert locate({}).find_config_file() is None
    file = tmp_path / "config/palyra/config.toml"
    file.parent.mkdir(parents=True)
    file.touch()
    assert locate({}).find_config_file() == file
    with pytest.raises(SettingsUnreadable, match="--config"):
        locate({}, config_option=tmp_path / "absent.toml").find_config_file()


def test_policies_and_workspace_have_places_of_their_own(tmp_path: Path) -> None:
    places = locate({})
    assert places.policy_dir("") == tmp_path / "config/palyra/policies"
    assert places.workspace_root("") == tmp_path / "state/palyra/workspace"
    chosen = Settings(policy=PolicySettings(dir="~/p"), workspace=WorkspaceSettings(root="/srv/w"))
    assert places.policy_dir(chosen.policy.dir) == tmp_path / "home/p"
    assert places.workspace_root(chosen.workspace.root) == Path("/srv/w")
