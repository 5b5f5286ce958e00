import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import PalyraError
from palyra.workspace import names
from palyra.workspace.errors import BadPattern
from palyra.workspace.names import (
    START,
    BadPath,
    BadProtectedName,
    Glob,
    PathTooLong,
    ProtectedName,
    ProtectedNames,
    WorkspacePath,
    decode_name,
    encode_name,
    is_plain,
    name_pattern,
    normalize_name,
    render_name,
)
from palyra.workspace.protected_table import PROTECTED_NAMES, ProtectedGroup, leave_out


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
    text = render_name(name)
    assert is_plain(text)
    assert (text == name) == is_plain(name)
    text.encode()


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_two_escaped_names_are_never_shown_alike(first: bytes, second: bytes) -> None:
    one, two = decode_name(first), decode_name(second)
    if one != two and is_plain(one) == is_plain(two):
        assert render_name(one) != render_name(two)


def test_shows_invisible_characters_and_bytes() -> None:
    assert render_name("a\nb") == "a\\x0ab"
    assert render_name("\u202egpj.exe") == "\\u202egpj.exe"
    assert render_name("a\\\x7f") == "a\\\\\\x7f"
    assert render_name("\udcff") == "\\xff"
    assert render_name("\U000e0001") == "\\U000e0001"
    assert render_name("naïve \\ 日本") == "naïve \\ 日本"


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/deep/a.py", True),
        ("*.py", "a.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/x/a.py", False),
        ("src/*.py", "x/src/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("**/test/**", "a/test/b/c", True),
        ("**/test/**", "a/b", False),
        ("*.{c,h}", "x.h", True),
        ("*.{c,h}", "x.o", False),
        ("{a,b}/{c,d}", "b/c", True),
        ("{a", "{a", True),
        ("[!a]?", "bc", True),
        ("[!a]?", "ac", False),
        ("./src/a", "src/a", True),
        ("a*", "a\nb", True),
    ],
)
def test_matches(pattern: str, path: str, expected: bool) -> None:
    assert Glob(pattern).matches(path.split("/")) is expected


@pytest.mark.parametrize("pattern", ["", "a\0", "../*", "x" * 1001, "{a,b}" * 7, "{" + "," * 70 + "}"])
def test_refuses(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Glob(pattern)


def test_many_stars_do_not_backtrack() -> None:
    # A backtracking matcher would need more steps here than there is time: the test would hit its timeout.
    assert name_pattern("*a" * 100 + "b").match("a" * 255) is None
    assert not Glob("**/a/" * 150 + "b").matches(["a"] * 1000)


NAMES = ProtectedNames((".git/hooks", ".env*", "secrets/*.pem", "[ab]x/", "*.key"))


@pytest.mark.promise("P-files-protected")
@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        (".git/hooks", ".git/hooks"),
        (".git/hooks/deep/er", ".git/hooks"),
        ("a/b/.GIT/HOOKS/x", ".git/hooks"),
        (".git", ".git/hooks"),
        ("a/.git", ".git/hooks"),
        (".env", ".env*"),
        (".Env.production/x", ".env*"),
        ("secrets/a.pem", "secrets/*.pem"),
        ("secrets", "secrets/*.pem"),
        ("bx", "[ab]x/"),
        ("z/id.KEY", "*.key"),
        (".ｅnv", ".env*"),
        (".git\u200d/hooks", ".git/hooks"),
        (".git. ./hooks", ".git/hooks"),
        (".e\ufe0fnv", ".env*"),
    ],
)
def test_protects(path: str, pattern: str) -> None:
    assert NAMES.match(path.split("/")) == pattern
    with pytest.raises(ProtectedName) as caught:
        NAMES.refuse(path.split("/"))
    assert caught.value.details["pattern"] == pattern


@pytest.mark.parametrize(
    "path", [".git/HEAD", "git/hooks", ".git/hook", ".gitignore", "env", "a.env", "secrets/a.txt", "cx", ".git/x/hooks"]
)
def test_leaves_alone(path: str) -> None:
    assert NAMES.match(path.split("/")) is None
    NAMES.refuse(path.split("/"))


def test_no_names_protect_nothing() -> None:
    assert ProtectedNames().match([".git", "hooks"]) is None
    assert NAMES.match([]) is None


DEEP = ProtectedNames((".git/modules/**/config", ".git/modules/**/hooks", "a/**/b/c", "x/**/**/y"))


@pytest.mark.parametrize(
    "path",
    [
        ".git/modules/config",
        ".git/modules/one/config",
        "vendor/.GIT/modules/one/two/three/Config",
        ".git/modules/one/modules/two/hooks/pre-commit",
        "a/b/c",
        "a/b/b/c",
        "a/b/x/b/c/d",
        "a/b",
        "x/y",
        "x/1/2/y",
    ],
)
def test_two_stars_stand_for_any_number_of_names(path: str) -> None:
    assert DEEP.match(path.split("/")) is not None


@pytest.mark.parametrize(
    "path",
    [".git/modules/one/HEAD", ".git/modules/one/objects/ab/cdef", ".git/modules", "modules/one/config", "a/c", "a/x/c"],
)
def test_two_stars_make_no_file_on_the_way_special(path: str) -> None:
    """A repository's objects lie beneath ``.git/modules``; only a file in the place of a named directory matters."""
    assert DEEP.match(path.split("/")) is None


def test_a_link_where_two_stars_may_go_on_is_found() -> None:
    _, state = DEEP.step(START, ".git")
    _, state = DEEP.step(state, "modules")
    assert DEEP.parent_of(state) is None
    assert DEEP.parent_of(state, link=True) == ".git/modules/**/config"


@pytest.mark.parametrize(
    ("path", "group"),
    [
        (".git/modules/a/b/config", "git"),
        ("deep/er/CLAUDE.md", "agents"),
        (".cursor/rules/x.mdc", "agents"),
        ("my.code-workspace", "editors"),
        (".nvim.lua", "editors"),
        ("sub/.envrc", "secrets"),
        (".mise.local.toml", "shell"),
        ("lib/python3.12/site-packages/evil.pth", "package-tools"),
        ("app/node_modules/.bin/tsc", "package-tools"),
        (".cargo/config.toml", "package-tools"),
        (".forgejo/workflows/ci.yml", "ci"),
        (".env.local", "secrets"),
    ],
)
def test_the_built_in_names_of_a_group_can_be_opened(path: str, group: ProtectedGroup) -> None:
    parts = path.split("/")
    with pytest.raises(ProtectedName) as refused:
        ProtectedNames(PROTECTED_NAMES).refuse(parts)
    assert f'open_groups = ["{group}"]' in (refused.value.hint or "")
    ProtectedNames(leave_out(PROTECTED_NAMES, [group])).refuse(parts)


@pytest.mark.parametrize(
    "path",
    ["README.md", "docs/agents/index.md", "src/config", "config", "path.py", "head.txt", "package.json", "bin/run"],
)
def test_ordinary_files_are_in_no_group(path: str) -> None:
    ProtectedNames(PROTECTED_NAMES).refuse(path.split("/"))


@pytest.mark.parametrize("source", ["", "/", "/etc", "../x", "a/../b", "**/x", "x/**", "**", ".", "a\0"])
def test_refuses_patterns_that_mean_nothing(source: str) -> None:
    with pytest.raises(BadProtectedName):
        ProtectedNames((source,))


def test_refuses_more_names_than_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MAX_PROTECTED_NAMES", 2)
    with pytest.raises(BadProtectedName):
        ProtectedNames(("a", "b", "c"))


PATTERNS = (".git/hooks", ".git/config", ".env*", ".vscode", ".github/workflows", "*.key", "[ab]x/y?")
NAME = st.sampled_from(
    [
        ".git",
        ".GIT",
        "hooks",
        "config",
        ".env",
        ".env.local",
        "src",
        ".vscode",
        ".VSCode.",
        "a.key",
        "ax",
        "bx",
        "yz",
        "y",
    ]
)


def protects(protected: ProtectedNames, names: list[str]) -> bool:
    """As a file at this path: complete on the way or at the end, or in the place of a protected name's parent."""
    state = START
    for name in names:
        complete, state = protected.step(state, name)
        if complete:
            return True
    return bool(state)


@given(st.lists(NAME, min_size=1, max_size=5))
def test_it_agrees_with_a_comparison_of_every_pattern_at_every_place(names: list[str]) -> None:
    plain = [normalize_name(name) for name in names]
    expected = any(
        all(fnmatch.fnmatchcase(name, part) for name, part in zip(plain[start:], pattern.split("/"), strict=False))
        for pattern in PATTERNS
        for start in range(len(plain))
    )
    assert protects(ProtectedNames(PATTERNS), names) == expected
    assert (ProtectedNames(PATTERNS).match(names) is not None) == expected


@pytest.mark.parametrize("name", [".ｇit", ".Git", ".git.", ".git ", ".gi\u200bt"])
def test_other_spellings_of_a_name_are_that_name(name: str) -> None:
    protected = ProtectedNames((".git/hooks",))
    _, state = protected.step(START, name)
    assert protected.step(state, "hooks")[0] == ".git/hooks"


def test_a_bad_pattern_is_refused_and_no_pattern_is_empty() -> None:
    with pytest.raises(BadProtectedName):
        ProtectedNames(("../x",))
    assert not ProtectedNames(()).patterns


def test_thousands_of_patterns_are_not_compared_one_by_one() -> None:
    protected = ProtectedNames(tuple(f"name{number}/inner" for number in range(20_000)))
    assert protected.step(START, "other") == (None, START)
    complete, state = protected.step(START, "name7")
    assert (complete, len(state)) == (None, 1)
