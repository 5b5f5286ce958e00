"""Merging: the later source wins, every value keeps its origin, mistakes name their place."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.commands.config import settings_as_toml
from palyra.config.load import (
    LoadedSettings,
    OriginKind,
    TomlFile,
    UnknownSetting,
    given_as_flags,
    given_in_environment,
    given_in_file,
    merge,
    read_variable,
)
from palyra.config.setting_types import InvalidSetting, known_settings, value_of
from palyra.daemon.settings import Settings, check_together


def load(
    file: dict[str, Any] | None = None, environ: dict[str, str] | None = None, flags: dict[str, Any] | None = None
) -> LoadedSettings[Settings]:
    lines = {("daemon",): 1, ("daemon", "port"): 2, ("daemon", "prt"): 3, ("tols", "allowed"): 7, ("tols",): 6}
    layers = [
        given_in_file(Settings, TomlFile(path=Path("c.toml"), tree=file or {}, lines=lines)),
        given_in_environment(Settings, environ or {}),
        given_as_flags(flags or {}),
    ]
    return merge(Settings, layers, check_together)


def test_nothing_given_means_the_defaults() -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert set(loaded.origins) == set(known_settings(Settings))
    assert {origin.kind for origin in loaded.origins.values()} == {OriginKind.DEFAULT}


def test_each_source_wins_over_the_one_before() -> None:
    file, environ, flags = {"daemon": {"port": 1}}, {"PALYRA_DAEMON__PORT": "2"}, {"daemon.port": 3}
    steps = [load(file), load(file, environ), load(file, environ, flags)]
    assert [step.settings.daemon.port for step in steps] == [1, 2, 3]
    shown = [str(step.origins["daemon.port"]) for step in steps]
    assert shown == ["c.toml:2", "PALYRA_DAEMON__PORT", "flag for daemon.port"]
    assert str(steps[2].origins["daemon.host"]) == "default"


def test_a_list_or_table_is_replaced_as_a_whole() -> None:
    file = {"tools": {"allowed": ["a", "b"]}, "access": {"groups": {"x": ["user:a"]}}}
    loaded = load(file, {"PALYRA_TOOLS__ALLOWED": "c", "PALYRA_ACCESS__GROUPS": '{y = ["user:b"]}'})
    assert loaded.settings.tools.allowed == ("c",)
    assert loaded.settings.access.groups == {"y": ("user:b",)}


def test_a_section_of_named_tables_is_one_setting_without_a_key() -> None:
    web = {"root": "/srv/web", "who": ["agent:web-*"]}
    loaded = load({"workspaces": {"web": web}})
    assert loaded.settings.workspaces["web"].who == ("agent:web-*",)
    assert loaded.origins["workspaces"].kind is OriginKind.FILE
    environ = {"PALYRA_WORKSPACES": '{data = {root = "/srv/data", who = ["user:a"]}}'}
    loaded = load({"workspaces": {"web": web}}, environ)
    assert list(loaded.settings.workspaces) == ["data"], "it is replaced as a whole"
    again = tomllib.loads(settings_as_toml(loaded.settings))
    assert load(again).settings == loaded.settings
    for wrong, complaint in (
        ({**web, "rot": 1}, "unknown field rot"),
        ({"root": "/x"}, "required field who"),
        (5, "object"),
    ):
        with pytest.raises(InvalidSetting, match=complaint) as caught:
            load({"workspaces": {"web": wrong}})
        assert caught.value.details["setting"] == "workspaces"
    for name in ("a b", "", "../a", "x" * 65):
        with pytest.raises(InvalidSetting, match="workspaces"):
            load({"workspaces": {name: web}})
    with pytest.raises(InvalidSetting, match="relative"):
        load({"workspaces": {"web": {**web, "root": "srv"}}})
    with pytest.raises(InvalidSetting, match="there is no group 'x'"):
        load({"workspace": {"who": ["group:x"]}})


@pytest.mark.promise("P-clear-errors")
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({"daemon": {"prt": 1}}, "c.toml:3: daemon.prt is not a setting; did you mean daemon.port?"),
        ({"tols": {"allowed": []}}, "c.toml:7: tols.allowed is not a setting; did you mean tools.allowed?"),
        ({"tols": {}}, "c.toml:6: tols is not a setting; did you mean tools?"),
        ({"port": 1}, "c.toml: port is not a setting; did you mean daemon.port?"),
        ({"zzz": {"qqq": 1}}, "c.toml: zzz.qqq is not a setting"),
        ({"daemon": 5}, "c.toml:1: daemon is not a setting"),
    ],
)
def test_an_unknown_key_names_its_line_and_the_nearest_key(file: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownSetting) as caught:
        load(file)
    assert caught.value.message.startswith(message)


def test_unknown_variables_and_flags_are_refused_too() -> None:
    with pytest.raises(UnknownSetting, match="did you mean PALYRA_DAEMON__PORT"):
        load(environ={"PALYRA_DAEMON__PROT": "1"})
    with pytest.raises(UnknownSetting, match=r"did you mean tools\.timeout_ms"):
        load(flags={"tools.timeout": 1})


def test_an_empty_known_section_and_other_variables_are_left_alone() -> None:
    environ = {"PALYRA_CONFIG": "x", "PALYRA_STATE_DIR": "y", "PALYRA_DEBUG": "1", "HOME": "/", "XPALYRA_A__B": "1"}
    assert load({"daemon": {}}, environ).settings == Settings()


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ({"daemon": {"port": "80"}}, "c.toml:2: daemon.port: expected int, got str"),
        ({"daemon": {"port": 65536}}, "c.toml:2: daemon.port: expected int <= 65535"),
        ({"daemon": {"port": -1}}, "c.toml:2: daemon.port: expected int >= 0"),
        ({"daemon": {"port": True}}, "c.toml:2: daemon.port: expected int, got bool"),
        ({"tools": {"timeout_ms": 0}}, "c.toml: tools.timeout_ms: expected int >= 1"),
        ({"tools": {"allowed": "echo"}}, "c.toml: tools.allowed: expected array, got str"),
        ({"tools": {"allowed": [""]}}, "c.toml: tools.allowed: expected str of length >= 1"),
        ({"access": {"groups": ["x"]}}, "c.toml: access.groups: expected object, got array"),
        ({"journal": {"checkpoint_seconds": 0}}, "c.toml: journal.checkpoint_seconds: expected float > 0"),
        ({"budget": {"wasm_fuel": 2**60}}, "c.toml: budget.wasm_fuel: expected int <="),
    ],
)
def test_a_wrong_value_names_its_place_and_what_was_expected(file: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load(file)
    assert caught.value.message.startswith(complaint)
    assert caught.value.details["setting"] in complaint


def test_a_wrong_value_is_refused_even_when_replaced_later() -> None:
    with pytest.raises(InvalidSetting, match=r"c\.toml:2"):
        load({"daemon": {"port": "x"}}, {"PALYRA_DAEMON__PORT": "1"})


def test_a_contradiction_blames_the_source_that_made_it() -> None:
    with pytest.raises(InvalidSetting) as caught:
        load(environ={"PALYRA_TOOLS__MAX_TIMEOUT_MS": "10"})
    assert caught.value.message.startswith("PALYRA_TOOLS__MAX_TIMEOUT_MS: tools.timeout_ms is 30000")


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("daemon.port", "0x1BE6", 7142),
        ("daemon.port", "7_142", 7142),
        ("daemon.host", "127.0.0.1", "127.0.0.1"),
        ("daemon.host", "::1", "::1"),
        ("daemon.host", '"::1"', "::1"),
        ("daemon.host", "1", "1"),
        ("workspace.root", "", ""),
        ("workspace.root", "/srv/a # b", "/srv/a # b"),
        ("tools.allowed", '["a", "b,c"]', ("a", "b,c")),
        ("tools.allowed", " echo , fs.* ,", ("echo", "fs.*")),
        ("tools.allowed", "", ()),
        ("tools.allowed", "7", ("7",)),
        ("journal.checkpoint_seconds", "5", 5.0),
        ("journal.checkpoint_seconds", "0.5", 0.5),
        ("access.groups", '{admins = ["user:a"]}', {"admins": ("user:a",)}),
    ],
)
def test_variables_are_read_by_the_shape_of_their_setting(name: str, raw: str, value: Any) -> None:
    info = known_settings(Settings)[name]
    assert value_of(load(environ={info.env_name: raw}).settings, name) == value


@pytest.mark.parametrize("raw", ["abc", "", "1\nx = 2", "[1", "1 2"])
def test_a_variable_that_is_no_number_is_refused_where_one_is_wanted(raw: str) -> None:
    with pytest.raises(InvalidSetting, match="PALYRA_DAEMON__PORT"):
        load(environ={"PALYRA_DAEMON__PORT": raw})


@given(st.sampled_from(sorted(known_settings(Settings))), st.text(max_size=40))
def test_reading_a_variable_never_breaks(name: str, raw: str) -> None:
    info = known_settings(Settings)[name]
    read_variable(info, raw)
    try:
        load(environ={info.env_name: raw})
    except (InvalidSetting, UnknownSetting) as error:
        assert info.env_name in error.message
