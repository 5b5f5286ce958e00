import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.config.toml_lines import MAX_SCALAR_CHARS, Path, TomlRefused, line_at, lines_of

DOCUMENT = '''# first
a = 1
b.c = "x # no comment"   # comment
"quoted key".d = [
  "one", # [ { "
  { e = 2, f = [3,
     4] },
]

[t]
long = """
not = "a key"
[neither]
"quotes" ""\\"
"""
raw = \'\'\'
also = not \'\'
\'\'\'

[[list.of]]
g = 1
[[list.of]]
g = 2
[list.of.h]
i = 1979-05-27T07:32:00Z
'''


def test_every_key_and_item_has_its_line() -> None:
    tomllib.loads(DOCUMENT)
    lines = lines_of(DOCUMENT)
    expected: dict[Path, int] = {
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 3,
        ("quoted key", "d"): 4,
        ("quoted key", "d", 0): 5,
        ("quoted key", "d", 1): 6,
        ("quoted key", "d", 1, "e"): 6,
        ("quoted key", "d", 1, "f", 1): 7,
        ("t",): 10,
        ("t", "long"): 11,
        ("t", "raw"): 16,
        ("list", "of", 0): 20,
        ("list", "of", 0, "g"): 21,
        ("list", "of", 1, "g"): 23,
        ("list", "of", 1, "h", "i"): 25,
    }
    assert {path: lines[path] for path in expected} == expected
    assert ("t", "not") not in lines and ("neither",) not in lines


def test_what_has_no_line_gets_that_of_what_is_around_it() -> None:
    lines = lines_of("x = 1\n[t]\ny = {}\n")
    assert line_at(lines, ("t", "y", "missing")) == 3
    assert line_at(lines, ("t", "missing")) == 2
    assert line_at(lines, ("missing",)) == 1


WORDS = st.text("ab_-1", min_size=1, max_size=4)
VALUES = st.recursive(
    st.one_of(st.integers(-9, 9), st.booleans(), st.text("ab\"'\\#[]{}=,\n ", max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=8,
)


def written(value: Any) -> str:
    """TOML on one line."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case _:
            return "{" + ", ".join(f'"{key}" = {written(item)}' for key, item in value.items()) + "}"


def paths_of(value: Any, path: Path) -> list[Path]:
    found: list[Path] = [path]
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, item in items:
        found += paths_of(item, (*path, key))
    return found


@given(st.dictionaries(WORDS, VALUES, max_size=6))
def test_a_document_of_one_key_a_line_is_read_in_full(tree: dict[str, Any]) -> None:
    text = "".join(f'"{key}" = {written(value)}\n' for key, value in tree.items())
    assert tomllib.loads(text) == tree
    expected = {
        path: number for number, (key, value) in enumerate(tree.items(), start=1) for path in paths_of(value, (key,))
    }
    assert lines_of(text) == expected


@given(st.text("a=[]{}\"',.#\n ", max_size=40))
def test_it_ends_whatever_the_text(text: str) -> None:
    lines_of(text)


@pytest.mark.parametrize(
    "text",
    ["x = 1\n" + ".".join(["a"] * 100_000) + " = 1", "x = 1\ny = " + "[" * 100_000, "x = 1\ny = " + "{a=" * 90_000],
)
def test_nesting_is_bounded_before_it_costs_anything(text: str) -> None:
    with pytest.raises(TomlRefused, match="nested too deeply") as refused:
        lines_of(text)
    assert refused.value.line == 2


@pytest.mark.parametrize("place", ["a = 1\nb = {}\n", "a = [1,\n {}, 2]\n", "[t]\nb = {{ c = {} }} # end\n"])
def test_a_number_longer_than_any_that_is_meant_has_its_line(place: str) -> None:
    lines_of(place.format("9" * MAX_SCALAR_CHARS))
    lines_of(place.format('"' + "9" * 5_000 + '"'))
    with pytest.raises(TomlRefused, match="without quotes") as refused:
        lines_of(place.format("9" * (MAX_SCALAR_CHARS + 1)))
    assert refused.value.line == 2
