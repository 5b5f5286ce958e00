import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.pipeline.domain.approval import MAX_MATCHED_CHARS, ArgumentPattern, InvalidPattern


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
@pytest.mark.parametrize("raw", [{}, [], "x", None, {f"k{i}": 1 for i in range(33)}, {"k": "x" * 1025}])
def test_refused_patterns(raw: object) -> None:
    with pytest.raises(InvalidPattern):
        ArgumentPattern.parse(raw)


def test_many_stars_on_a_long_text_end() -> None:
    assert not matches("*a" * 200 + "b", "a" * MAX_MATCHED_CHARS)


@given(st.text("ab/*?", max_size=8), st.text("ab/", max_size=8))
def test_agrees_with_the_plain_translation(pattern: str, text: str) -> None:
    if not re.search(r"[*?]", pattern):
        return
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    source = "".join({"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part)) for part in parts)
    assert matches(pattern, text) is bool(re.fullmatch(source, text, re.DOTALL))
