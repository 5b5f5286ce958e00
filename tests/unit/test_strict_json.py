import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra import strict_json
from palyra.canonical import canonical_json
from palyra.limits import MAX_JSON_DEPTH
from palyra.strict_json import AmbiguousNumber, DuplicateKey, MalformedJson, TooDeep, parse_strict


@pytest.mark.promise("P-one-meaning")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"a":1,"a":2}', DuplicateKey),
        ('{"a":1,"\\u0061":1}', DuplicateKey),
        ('[{"x":{"k":1,"k":1}}]', DuplicateKey),
        ("NaN", AmbiguousNumber),
        ("[Infinity]", AmbiguousNumber),
        ("-Infinity", AmbiguousNumber),
        ("1e999", AmbiguousNumber),
        ("1.0", AmbiguousNumber),
        ("1e0", AmbiguousNumber),
        ("10E-1", AmbiguousNumber),
        ("-0", AmbiguousNumber),
        ("-0.0", AmbiguousNumber),
        ("0e5", AmbiguousNumber),
        ("9007199254740992", AmbiguousNumber),
        ("1" * 5000, AmbiguousNumber),
        ("[" * 65 + "]" * 65, TooDeep),
        ("[" * 100_000, TooDeep),
        ('"\\ud800"', MalformedJson),
        ('{"\\udfff":1}', MalformedJson),
        ("\ufeff{}", MalformedJson),
        ("{} {}", MalformedJson),
        ("{'a':1}", MalformedJson),
        ("[1,]", MalformedJson),
        ("", MalformedJson),
    ],
)
def test_refuses_what_has_two_readings(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_strict(text)


def test_refuses_bytes_that_are_not_utf8() -> None:
    with pytest.raises(MalformedJson):
        parse_strict(b'"\xff"')


@pytest.mark.promise("P-limits")
def test_accepts_the_deepest_that_is_allowed() -> None:
    assert parse_strict("[" * 64 + "]" * 64)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_ordinary_values_survive(value: object) -> None:
    assert parse_strict(json.dumps(value)) == value


@pytest.mark.promise("P-one-meaning")
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_accepted_number_has_one_canonical_spelling(number: float) -> None:
    try:
        value = parse_strict(repr(number))
    except AmbiguousNumber:
        assert number.is_integer()
        return
    again = parse_strict(canonical_json(value))
    assert again == value and type(again) is type(value)


@given(
    st.recursive(
        st.none() | st.text(max_size=8) | st.integers(-9, 9),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
        max_leaves=40,
    ),
    st.booleans(),
)
def test_what_its_text_shows_to_be_sound_is_sound(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    if strict_json._is_plainly_sound(text):
        strict_json._check_tree(value, 1)


def test_depth_and_halves_of_pairs_are_found_whichever_way_they_are_written() -> None:
    deepest = "[" * (MAX_JSON_DEPTH - 1) + "1" + "]" * (MAX_JSON_DEPTH - 1)
    assert parse_strict(deepest) is not None
    for text in (f"[{deepest}]", '{"a":' * MAX_JSON_DEPTH + "1" + "}" * MAX_JSON_DEPTH):
        with pytest.raises(TooDeep):
            parse_strict(text)
    with pytest.raises(MalformedJson):
        parse_strict('["\\ud800"]')


def test_what_is_wrong_is_said_once() -> None:
    with pytest.raises(MalformedJson, match=r"Invalid control character at line 1, column 3$"):
        parse_strict('["\n"]')
