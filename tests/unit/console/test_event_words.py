"""One line on any event, whatever is in it."""

import json

import pytest

from palyra.console.event_words import OWN_WORDS, said
from palyra.journal.event import Event


def event(payload: object, kind: str = "a.b") -> Event:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Event(
        seq=1,
        id="i",
        time_ms=0,
        kind=kind,
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
        ({"outcome": "needs_approval", "tool": "fs.write"}, "needs approval · fs.write"),
        ({"target": {"scheme": "https", "host": "a.example", "port": 443}}, "https://a.example:443"),
        ({"name": f"{'0' * 18}ABCDEFGH of {'ab' * 32}"}, "ABCDEFGH of abababababab"),
        ({"meaning": "until 2026-11-17T10:30:09.537Z"}, "until 2026-11-17 10:30 UTC"),
        ({"nothing": "known"}, ""),
        (b"not json", "not json"),
        ({"reason": "x" * 500}, "x" * 160),
    ],
)
def test_the_most_telling_comes_first(payload: object, words: str) -> None:
    assert said(event(payload)) == words


REFUSAL = {"code": "egress.host_not_allowed", "host": "a.example", "port": 80, "detail": "no"}


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        (
            "approval.requested",
            {"tool": "fs.write", "meaning": "agent:bot may", "reason": ""},
            "fs.write waits for a person",
        ),
        (
            "approval.approved",
            {"tool": "t", "meaning": "agent:bot may", "reason": "as agreed"},
            "as agreed · agent:bot may",
        ),
        ("approval.denied", {"tool": "fs.write", "reason": "not here"}, "not here · fs.write may not"),
        ("run.opened", {"budget": {"calls": 1}}, "up to 1 call"),
        ("run.opened", {"budget": None}, "without a bound of its own"),
        ("credential.created", {"label": "nightly", "scopes": ["call", "operate"]}, "nightly · may call and operate"),
        ("credential.rejected", {"count": 2}, "2 requests with no token or a bad one"),
        ("console.logged_in", {"role": "viewer"}, "as viewer"),
        ("console.action_done", {"action": "browser.watch", "target": "s"}, "browser.watch s"),
        (
            "console.action_failed",
            {"action": "a", "error": {"code": "c", "message": "that went wrong"}},
            "a: that went wrong",
        ),
        ("console.action_failed", {"action": "a", "error": {"code": "c"}}, "c · a"),
        ("vault.created", {"key_source": "file"}, "its key is kept in: file"),
        ("skill.audited", {"skill_id": "s", "version": "1", "errors": 0, "warnings": 1}, "s 1 · no errors, 1 warning"),
        ("egress.refused", {"refusal": REFUSAL, "tool": "t"}, "egress.host_not_allowed · a.example:80 · t"),
        ("egress.closed", {"target": "x", "reason": "done", "tool": "t"}, "x · done · t"),
        ("browser.session_opened", {"hosts": ["a.example"]}, "may reach a.example"),
        (
            "browser.downloaded",
            {"code": "executable", "text": f"{'0' * 26} {'ab' * 32} a.csv: quarantine"},
            "executable · a.csv: quarantine",
        ),
        ("pairing.code_created", {"method": "qr", "kind": "worker"}, "a QR code for a worker"),
        ("policy.rejected", {"errors": ["a.cedar:1: no\n  1 | permit"]}, "a.cedar:1: no"),
        ("policy.swapped", {"old": "ab" * 32, "new": "cd" * 32}, "cdcdcdcdcdcd instead of abababababab"),
    ],
)
def test_kinds_with_words_of_their_own(kind: str, payload: object, words: str) -> None:
    assert said(event(payload, kind)) == words


def test_every_kind_with_words_of_its_own_bears_an_empty_payload() -> None:
    for kind in OWN_WORDS:
        said(event({}, kind))
