"""Stepping name by name says the same as the file tools' check of a whole path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.workspace.protected import START, BadProtectedName, ProtectedNames

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
def test_it_agrees_with_the_file_tools(names: list[str]) -> None:
    assert protects(ProtectedNames(PATTERNS), names) == (ProtectedNames(PATTERNS).match(names) is not None)


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
