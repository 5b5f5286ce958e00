import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.limits import MAX_JSON_DEPTH
from palyra.strict_json import NotStrictJson, parse_strict

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_reads_what_json_writes(value: object) -> None:
    assert parse_strict(json.dumps(value, ensure_ascii=False).encode(), any_number_spelling=True) == value


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'[{"x":{"k":1,"k":2}}]',
        b"NaN",
        b"[-Infinity]",
        b"1e999",
        b"[-1e999]",
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'"\xff"',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"{} {}",
        b"",
        b"{'a':1}",
        b'{"a":1,}',
        b"1" * 5000,
    ],
)
def test_refuses_what_parsers_disagree_about(raw: bytes) -> None:
    with pytest.raises(NotStrictJson):
        parse_strict(raw, any_number_spelling=True)


def test_depth_is_bounded_at_the_named_limit() -> None:
    assert parse_strict(b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH, any_number_spelling=True)
    for depth in (MAX_JSON_DEPTH + 1, 100_000):
        with pytest.raises(NotStrictJson):
            parse_strict(b"[" * depth + b"]" * depth, any_number_spelling=True)
