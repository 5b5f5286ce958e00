"""Principals: one spelling, parsed at the edge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.ids import InvalidPrincipal, Principal, PrincipalKind
from palyra.limits import MAX_PRINCIPAL_CHARS


@pytest.mark.parametrize(
    "raw", ["user:operator", "agent:coder-1", "user:a.b_c@example.org", "agent:team/x+y", "user:0"]
)
def test_good_principals_print_as_they_were_written(raw: str) -> None:
    assert str(Principal.parse(raw)) == raw


def test_the_parts_are_typed() -> None:
    assert Principal.parse("agent:coder") == Principal(PrincipalKind.AGENT, "coder")
    assert Principal.parse("user:coder") != Principal.parse("agent:coder")


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "user",
        "user:",
        ":x",
        "root:x",
        "User:x",
        "user: x",
        "user:x ",
        "user:x\n",
        "user:-x",
        "user:.x",
        "user:a:b",
        'user:a"b',
        "user:a\\b",
        "user:ü",
        "user:а",
        "user:a\0b",
        "agent:*",
        " agent:x",
    ],
)
def test_other_spellings_are_refused(raw: str) -> None:
    with pytest.raises(InvalidPrincipal):
        Principal.parse(raw)


@pytest.mark.promise("P-limits")
def test_length_is_bounded_to_the_character() -> None:
    longest = "user:" + "a" * (MAX_PRINCIPAL_CHARS - 5)
    assert str(Principal.parse(longest)) == longest
    with pytest.raises(InvalidPrincipal) as caught:
        Principal.parse(longest + "a" * 10_000)
    assert len(caught.value.message) < 2 * MAX_PRINCIPAL_CHARS


@given(st.text(max_size=30).map(lambda tail: f"user:{tail}"))
def test_whatever_parses_is_plain_ascii_and_round_trips(raw: str) -> None:
    try:
        principal = Principal.parse(raw)
    except InvalidPrincipal:
        return
    assert str(principal) == raw
    assert raw.isascii()
    assert raw.isprintable()
    assert not set(raw) & set("\"'\\* ")


def test_principals_sort_and_hash_as_values() -> None:
    names = ["user:b", "agent:z", "user:a"]
    assert [str(p) for p in sorted(map(Principal.parse, names))] == ["agent:z", "user:a", "user:b"]
    assert len({Principal.parse("user:a"), Principal.parse("user:a")}) == 1
