"""Canonical JSON: the fast path and the reference implementation write the same bytes."""

import hashlib
import json
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from palyra import canonical
from palyra.canonical import NotCanonical, canonical_json, digest_of

SAFE = 2**53 - 1

# Beyond the basic plane UTF-16 order, which the standard wants, differs from code point order.
keys = st.text(max_size=6) | st.sampled_from(["\ue000", "\uffff", "\U00010000", "\U0001f600", "\x00", "\x7f", "\u2028"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["\x00\x1f\x7f", '"\\/', "\u2028\u2029", "é", "\U0001f600", "\b\f\n\r\t"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)


@pytest.mark.promise("P-one-meaning")
@given(values)
@example({"\ue000": 1, "\U00010000": 2})
@example({"\U0001f600": 1, "\uffff": 2, "a": 3})
@example([0.0, -0.0, 1e21, 1e-7, 5e-324, 1.7976931348623157e308, 333333333.33333329, 4.5, 2e-3, 1e23])
@example({"a": "\x00\x01\x1f\x7f\x80", "b": "\u2028"})
@example([SAFE, -SAFE, True, False, None, "", {}, []])
def test_both_paths_write_the_same_bytes(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-SAFE, SAFE) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(max_codepoint=127), max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(plain_values)
def test_the_fast_path_really_takes_these_and_agrees(value: Any) -> None:
    assert canonical.is_plain(value)
    assert canonical.sorted_json(value) == rfc8785.dumps(value)


@given(values)
def test_the_bytes_parse_back_to_the_value(value: Any) -> None:
    # JSON has one kind of number: a large float is written with all its digits, as an integer would be.
    assert json.loads(canonical_json(value), parse_int=float) == value


@given(st.dictionaries(keys, st.integers(-5, 5), max_size=6), st.randoms())
def test_insertion_order_of_keys_does_not_matter(value: dict[str, int], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert digest_of(dict(items)) == digest_of(value)


@pytest.mark.promise("P-one-meaning")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),
        ({"\ue000": 1, "\U00010000": 2}, '{"\U00010000":2,"\ue000":1}'.encode()),
        ([1.0, 1e21, 1e-7, -0.0], b"[1,1e+21,1e-7,0]"),
        ("\x1f\x7f\u20ac/", b'"\\u001f\x7f\xe2\x82\xac/"'),
        ((1, 2), b"[1,2]"),
    ],
)
def test_known_spellings(value: Any, expected: bytes) -> None:
    assert canonical_json(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        SAFE + 1,
        -SAFE - 1,
        {"deep": [2**64]},
        "\ud800",
        {"\udfff": 1},
        {1: "a"},
        b"bytes",
        {"set": {1, 2}},
        object(),
    ],
)
def test_values_without_a_canonical_form_are_refused(value: Any) -> None:
    with pytest.raises(NotCanonical) as caught:
        canonical_json(value)
    assert caught.value.code == "json.not_canonical"


def test_the_digest_is_sha256_of_the_bytes_in_hex() -> None:
    assert digest_of({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


def test_true_is_not_one() -> None:
    assert digest_of([True]) != digest_of([1])
    assert digest_of(["1"]) != digest_of([1])


def test_one_and_one_point_zero_are_the_same_number_in_json() -> None:
    assert digest_of([1.0]) == digest_of([1])


class Shouting(str):
    __slots__ = ()


def test_subclasses_of_plain_types_are_written_as_their_values() -> None:
    assert canonical_json({"a": Shouting("x")}) == b'{"a":"x"}'
