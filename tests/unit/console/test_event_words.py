"""One line on any event, whatever is in it."""

import json

import pytest

from palyra.console.event_words import said
from palyra.journal.event import Event


def event(payload: object) -> Event:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Event(
        seq=1,
        id="i",
        time_ms=0,
        kind="a.b",
        actor="",
        principal="",
        run="",
        call="",
        payload=raw,
        prev_hash=b"",
        hash=b"",
    )


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"tool": "echo", "error": {"code": "call.denied", "message": "no"}}, "call.denied · echo"),
        ({"refusal": {"kind": "not_allowed", "host": "x"}}, "not_allowed"),
        ({"count": 3}, "count 3"),
        ({"errors": ["a", "b"]}, "a, b"),
        ({"nothing": "known"}, ""),
        (b"not json", "not json"),
        ({"reason": "x" * 500}, "x" * 160),
    ],
)
def test_the_most_telling_comes_first(payload: object, words: str) -> None:
    assert said(event(payload)) == words
