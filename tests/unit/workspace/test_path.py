import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import PalyraError
from palyra.workspace.path import BadPath, PathTooLong, WorkspacePath, decode_name, encode_name, is_plain, shown


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ("a/b", ("a", "b")),
        ("./a//b/", ("a", "b")),
        (".", ()),
        ("./", ()),
        ("...", ("...",)),
        ("..a/b..", ("..a", "b..")),
        ("a\nb", ("a\nb",)),
        ("\\", ("\\",)),
        ("x" * 255, ("x" * 255,)),
    ],
)
def test_accepts_relative_paths_in_one_normal_form(raw: str, names: tuple[str, ...]) -> None:
    assert WorkspacePath.parse(raw).names == names


@pytest.mark.parametrize("raw", ["", "/", "/a", "//a", "..", "a/..", "../a", "a/../b", "a\0", "\ud800", "./.."])
def test_refuses_what_is_not_a_path_beneath(raw: str) -> None:
    with pytest.raises(BadPath):
        WorkspacePath.parse(raw)


def test_counts_bytes_not_characters() -> None:
    for raw in ("x" * 256, "é" * 128, "a/" * 2048):
        with pytest.raises(PathTooLong):
            WorkspacePath.parse(raw)
    assert len(WorkspacePath.parse("é" * 127 + "x").encoded()) == 255
    assert len(WorkspacePath.parse("a/" * 2047 + "b").encoded()) == 4095


@given(st.text(max_size=60) | st.text(alphabet="./a\0\n", max_size=30))
def test_what_is_accepted_is_always_beneath_and_stable(raw: str) -> None:
    try:
        path = WorkspacePath.parse(raw)
    except PalyraError as error:
        assert error.code in {"workspace.bad_path", "workspace.path_too_long"}
        return
    assert not any(name in ("", ".", "..") or "/" in name or "\0" in name for name in path.names)
    assert not str(path).startswith("/")
    assert WorkspacePath.parse(str(path)) == path


@given(st.binary(max_size=40))
def test_any_bytes_survive_as_a_name_and_are_shown_in_one_harmless_line(raw: bytes) -> None:
    name = decode_name(raw)
    assert encode_name(name) == raw
    text = shown(name)
    assert is_plain(text)
    assert (text == name) == is_plain(name)
    text.encode()


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_two_escaped_names_are_never_shown_alike(first: bytes, second: bytes) -> None:
    one, two = decode_name(first), decode_name(second)
    if one != two and is_plain(one) == is_plain(two):
        assert shown(one) != shown(two)


def test_shows_invisible_characters_and_bytes() -> None:
    assert shown("a\nb") == "a\\x0ab"
    assert shown("\u202egpj.exe") == "\\u202egpj.exe"
    assert shown("a\\\x7f") == "a\\\\\\x7f"
    assert shown("\udcff") == "\\xff"
    assert shown("\U000e0001") == "\\U000e0001"
    assert shown("naïve \\ 日本") == "naïve \\ 日本"
