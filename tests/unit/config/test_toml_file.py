"""The settings file: parsed strictly, with the line of every key."""

import os
import tomllib
from pathlib import Path

import pytest

from palyra.config.load import MAX_SETTINGS_FILE_BYTES, SettingsSyntax, SettingsUnreadable, read_toml
from palyra.config.toml_lines import lines_of_keys

DOCUMENT = '''\
# comment
[daemon]
host = "127.0.0.1"

port = 7142 # trailing

[ "tools" ]
allowed = [
  "a", # [not a table]
  "b = c",
]
timeout_ms = 5

[access.groups]
admins = ["user:a"]
"odd.name" = []
[policy]
dir = """
/srv
[daemon]
port = 1
"""
[journal]
inline = {a = 1, b = {c = 2}}
dotted.key = 3
[[several]]
x = 1
[[several]]
x = 2
'''


def test_every_key_is_found_on_its_line() -> None:
    lines = lines_of_keys(DOCUMENT)
    assert lines[("daemon",)] == 2
    assert lines[("daemon", "host")] == 3
    assert lines[("daemon", "port")] == 5
    assert lines[("tools",)] == 7
    assert lines[("tools", "allowed")] == 8
    assert lines[("tools", "timeout_ms")] == 12
    assert lines[("access",)] == lines[("access", "groups")] == 14
    assert lines[("access", "groups", "odd.name")] == 16
    assert lines[("policy", "dir")] == 18
    assert lines[("journal", "inline", "b", "c")] == 24
    assert lines[("journal", "dotted", "key")] == 25
    assert lines[("several", "x")] == 27


def test_every_key_that_tomllib_sees_has_a_line() -> None:
    lines = lines_of_keys(DOCUMENT)

    def walk(tree: object, path: tuple[str, ...]) -> None:
        if isinstance(tree, dict):
            for key, value in tree.items():
                assert (*path, key) in lines
                walk(value, (*path, key))

    walk(tomllib.loads(DOCUMENT), ())


def test_windows_line_ends_and_a_missing_last_newline_are_fine() -> None:
    lines = lines_of_keys("[daemon]\r\nhost = 'x'\r\nport = 1")
    assert lines[("daemon", "host")] == 2
    assert lines[("daemon", "port")] == 3


def test_a_file_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[daemon]\nport = 5\n")
    file = read_toml(path)
    assert file.tree == {"daemon": {"port": 5}}
    assert file.lines[("daemon", "port")] == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[daemon\n", "line 1"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"a = '\xff'\n", "utf-8"),
        (b"a = " + b"[" * 20_000, ""),
        (b"#" * (MAX_SETTINGS_FILE_BYTES + 1), "larger"),
    ],
)
def test_what_is_not_toml_is_refused_with_its_place(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsSyntax) as caught:
        read_toml(path)
    assert str(path) in caught.value.message
    assert says in caught.value.message


def test_a_file_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(SettingsUnreadable, match=os.fspath(path)):
            read_toml(path)
