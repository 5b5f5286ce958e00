"""Messages looked at from outside."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.executors.mcp_upstream.messages import Envelope, count_containers, read_envelope

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"jsonrpc":"2.0","method":"m","params":{"id":3}}', Envelope(None, "m")),
        (b'{"id":7,"result":{"method":"m"},"jsonrpc":"2.0"}', Envelope(7, None)),
        (b'{"id":"7","method":"m"}', Envelope("7", "m")),
        (b"a greeting", None),
        (b"[]", None),
        (b'{"id":true}', None),
        (b'{"id":"' + b"7" * 257 + b'","method":"m"}', None),
        (b'{"id":7,"method":"' + b"m" * 257 + b'"}', None),
        (b'{"id":1,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
        (b'{"id":1,"result":', None),
        (b"\xff", None),
    ],
)
def test_what_a_line_is(line: bytes, expected: Envelope | None) -> None:
    assert read_envelope(line) == expected


def test_an_id_is_the_same_in_both_spellings() -> None:
    assert Envelope(7).request_id == Envelope("7").request_id


def counted(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(counted, value.values()))
    return 1 + sum(map(counted, value)) if isinstance(value, list) else 0


@given(VALUES, st.booleans())
def test_only_what_is_a_list_or_an_object_counts(value: object, plain: bool) -> None:
    line = json.dumps(value, ensure_ascii=plain).encode()
    assert count_containers(line, 0) == counted(value) <= count_containers(line, 1_000_000)
