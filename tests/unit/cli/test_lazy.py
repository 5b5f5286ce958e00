"""The lazy group: help and completion without imports, commands with one."""

import sys

import click
import pytest
from click.testing import CliRunner

from palyra.cli.command_table import CommandMissing, LazyCommand, LazyGroup, load

TABLE = {
    "config": LazyCommand("palyra.cli.commands.config:config", "Show settings."),
    "absent": LazyCommand("palyra.cli.no_such_noun:absent", "Not there."),
    "wrong": LazyCommand("palyra.cli.commands.config:as_toml", "Not a command."),
    "broken": LazyCommand("tests_broken_module:x", "Imports something that is not there."),
}


@pytest.fixture
def group() -> LazyGroup:
    return LazyGroup("palyra", table=TABLE)


def test_help_lists_the_table_and_imports_nothing(group: LazyGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "palyra.cli.commands.config", raising=False)
    result = CliRunner().invoke(group, ["--help"])
    assert result.exit_code == 0
    for name, entry in TABLE.items():
        assert f"{name} " in result.stdout
        assert entry.help in result.stdout
    assert "palyra.cli.commands.config" not in sys.modules


def test_a_called_command_is_imported(group: LazyGroup) -> None:
    result = CliRunner().invoke(group, ["config", "--help"])
    assert result.exit_code == 0
    assert "show" in result.stdout


@pytest.mark.parametrize(("typed", "meant"), [("confg", "config"), ("absnt", "absent")])
def test_a_misspelt_command_names_the_near_one(group: LazyGroup, typed: str, meant: str) -> None:
    result = CliRunner().invoke(group, [typed])
    assert result.exit_code == 2
    assert f"Did you mean {meant}?" in result.stderr


def test_a_command_like_no_other_suggests_nothing(group: LazyGroup) -> None:
    result = CliRunner().invoke(group, ["zzzzzz"])
    assert "No such command 'zzzzzz'." in result.stderr
    assert "mean" not in result.stderr


def test_an_unknown_option_is_called_an_option(group: LazyGroup) -> None:
    result = CliRunner().invoke(group, ["--jsn", "config"])
    assert result.exit_code == 2
    assert "No such option" in result.stderr


def test_a_command_whose_module_is_absent_is_unavailable() -> None:
    with pytest.raises(CommandMissing, match="'absent'"):
        load("absent", TABLE["absent"])


def test_a_module_that_fails_inside_is_not_called_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: "pytest.TempPathFactory"
) -> None:
    (tmp_path / "tests_broken_module.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        load("broken", TABLE["broken"])


def test_a_table_entry_that_is_not_a_command_is_a_bug() -> None:
    with pytest.raises(TypeError, match="not a command"):
        load("wrong", TABLE["wrong"])


def test_completion_offers_names_with_help(group: LazyGroup) -> None:
    items = group.shell_complete(click.Context(group), "co")
    assert [(item.value, item.help) for item in items] == [("config", "Show settings.")]
