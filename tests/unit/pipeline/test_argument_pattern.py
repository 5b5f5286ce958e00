import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.pipeline.domain.argument_pattern import MAX_MATCHED_CHARS, ArgumentPattern, InvalidPattern, exact_pattern


def matches(pattern: str, value: object) -> bool:
    return ArgumentPattern.parse({"p": pattern}).matches({"p": value})


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ("docs/*", "docs/a.md", True),
        ("docs/*", "docs/a/b.md", False),
        ("docs/**", "docs/a/b.md", True),
        ("docs/**", "docs/../etc/passwd", False),
        ("docs/**", "docs/..\\x", False),
        ("**", "..", False),
        ("d?cs", "docs", True),
        ("a?b", "a/b", False),
        ("*", "a\nb", True),
        ("[a]*", "a", False),
        ("*", 5, False),
        ("*", None, False),
        ("*", "x" * (MAX_MATCHED_CHARS + 1), False),
        ("exact", "exact", True),
        ("exact", "Exact", False),
    ],
)
def test_strings(pattern: str, value: object, expected: bool) -> None:
    assert matches(pattern, value) is expected


def test_other_values_must_be_equal_and_of_the_same_kind() -> None:
    pattern = ArgumentPattern.parse({"n": 1, "flags": ["a"]})
    assert pattern.matches({"n": 1, "flags": ["a"], "free": 3})
    assert not pattern.matches({"n": True, "flags": ["a"]})
    assert not pattern.matches({"n": 1, "flags": ["a", "b"]})
    assert not pattern.matches({"flags": ["a"]})


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    "raw", [{}, [], "x", None, {f"k{i}": 1 for i in range(257)}, {"k": "*" * 1025}, {"k": "a\\b"}, {"k": "a\\"}]
)
def test_refused_patterns(raw: object) -> None:
    with pytest.raises(InvalidPattern):
        ArgumentPattern.parse(raw)


ARGUMENTS = {"command": "bash", "args": ["-c", "rm *"], "cwd": "a*?b\\*", "deep": {"x": "*"}, "content": "*" * 5000}


@given(
    st.dictionaries(st.text(max_size=4), st.text("a*?\\/.\n", max_size=8) | st.integers(-9, 9) | st.lists(st.text()))
)
def test_the_exact_pattern_covers_the_call_and_no_other(arguments: dict[str, Any]) -> None:
    if not arguments:
        return
    pattern = ArgumentPattern.parse(exact_pattern(arguments))
    assert pattern.matches(arguments, alone=True)
    assert not pattern.matches({**arguments, "another": 1}, alone=True)
    for key, value in arguments.items():
        for other in (f"{value}x", "", "a", [value], value * 2 if isinstance(value, str | list) else 7.5):
            assert (other == value) is pattern.matches({**arguments, key: other}, alone=True)


@pytest.mark.promise("P-approval-exact")
def test_an_agent_writes_no_glob_into_the_pattern_that_a_form_starts_with() -> None:
    pattern = ArgumentPattern.parse(exact_pattern(ARGUMENTS))
    assert pattern.matches(ARGUMENTS)
    for changed in ({"args": ["-c", "rm x"]}, {"cwd": "axyb\\z"}, {"content": "**"}, {"deep": {"x": "y"}}):
        assert not pattern.matches({**ARGUMENTS, **changed})


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("a\\?*", "a?c", True),
        ("a\\?*", "abc", False),
        ("\\\\*", "\\x", True),
        ("\\\\*", "*", False),
        ("\\\\", "\\", True),
        ("\\*\\*", "**", True),
        ("\\*\\*", "xx", False),
    ],
)
def test_escapes(pattern: str, value: str, expected: bool) -> None:
    assert matches(pattern, value) is expected


def test_the_words_name_what_is_free() -> None:
    words = ArgumentPattern.parse({"command": "bash"}).in_words(ARGUMENTS)
    assert words == 'where command is "bash", whatever its other arguments: args, cwd, deep, content, and any more'
    all_named = ArgumentPattern.parse(exact_pattern(ARGUMENTS)).in_words(ARGUMENTS)
    assert 'args is ["-c", "rm *"]' in all_named and "content is exactly that of this call" in all_named
    assert all_named.endswith("and it has no other argument")


def test_many_stars_on_a_long_text_end() -> None:
    assert not matches("*a" * 200 + "b", "a" * MAX_MATCHED_CHARS)


@given(st.text("ab/*?", max_size=8), st.text("ab/", max_size=8))
def test_agrees_with_the_plain_translation(pattern: str, text: str) -> None:
    if not re.search(r"[*?]", pattern):
        return
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    source = "".join({"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part)) for part in parts)
    assert matches(pattern, text) is bool(re.fullmatch(source, text, re.DOTALL))
