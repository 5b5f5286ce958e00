"""One line on any event, whatever is in it."""

import json

import pytest

from palyra.server.console.app import SECTIONS
from palyra.server.console.event_text import SENTENCES, code_of, describe_event
from palyra.store.event import Event


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
        ({"tool": "echo", "error": {"code": "call.denied", "message": "no"}}, "no · echo"),
        ({"refusal": {"kind": "not_allowed", "host": "x"}}, "not allowed"),
        ({"code": "lease.too_late", "tool": "echo"}, "echo · too late"),
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
    assert describe_event(event(payload)) == words


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
        ("call.requested", {"tool": "echo"}, "echo was asked for"),
        ("call.decided", {"tool": "echo", "outcome": "allow"}, "echo is allowed"),
        ("call.decided", {"tool": "fs.write", "outcome": "needs_approval"}, "fs.write needs a person's approval"),
        (
            "call.decided",
            {"tool": "fs.write", "outcome": "deny", "reasons": ["policy.no_permit"]},
            "fs.write is denied: no policy permits it",
        ),
        ("call.finished", {"tool": "sleep", "state": "timed_out", "error": None}, "sleep timed out"),
        (
            "call.finished",
            {"tool": "fs.read", "state": "failed", "error": {"code": "fs.missing", "message": "a.txt is not there"}},
            "fs.read failed: a.txt is not there",
        ),
        (
            "call.refused",
            {"tool": "x", "error": {"code": "tool.unknown", "message": "there is no tool named 'x'"}},
            "there is no tool named 'x'",
        ),
        (
            "call.refused",
            {"tool": "fs.read", "error": {"code": "workspace.bad_path", "message": "the path has a .. component"}},
            "fs.read: the path has a .. component",
        ),
        ("vault.secret_put", {"ref": "global/key", "version": 2}, "global/key, version 2, is in force"),
        (
            "vault.use_denied",
            {"ref": "global/key", "code": "vault.not_for_it"},
            "global/key was not given out: not for it",
        ),
        ("skill.approved", {"skill_id": "s", "version": "1", "reason": "read"}, "s 1 is in use · read"),
        (
            "skill.refused",
            {"code": "skill.unsigned", "message": "no signature"},
            "an archive was not let in: no signature",
        ),
        ("node.disconnected", {"name": "phone", "code": "node.went_silent"}, "phone is offline · went silent"),
        (
            "console.request_refused",
            {"method": "POST", "path": "/x", "site": "http://evil", "code": "console.csrf_missing", "count": 3},
            "POST /x from http://evil: csrf missing · 3 times",
        ),
        ("run.opened", {"budget": {"calls": 1}}, "up to 1 call"),
        ("run.opened", {"budget": None}, "without a bound of its own"),
        ("credential.created", {"label": "nightly", "scopes": ["call", "operate"]}, "nightly · may call and operate"),
        ("credential.rejected", {"count": 2}, "2 requests with no token or a bad one"),
        ("console.logged_in", {"role": "viewer"}, "as viewer"),
        ("console.action_done", {"action": "browser.watch", "target": "s"}, "watching a browser · s: done"),
        (
            "console.action_failed",
            {"action": "a", "error": {"code": "c", "message": "that went wrong"}},
            "a: that went wrong",
        ),
        ("console.action_failed", {"action": "a", "error": {"code": "b.not_so"}}, "a: not so"),
        ("vault.created", {"key_source": "file"}, "its key is kept in: file"),
        ("skill.audited", {"skill_id": "s", "version": "1", "errors": 0, "warnings": 1}, "s 1 · no errors, 1 warning"),
        ("egress.refused", {"refusal": REFUSAL, "tool": "t"}, "a.example:80: no · t"),
        ("egress.closed", {"target": "x", "reason": "done", "tool": "t"}, "x closed: done · t"),
        ("browser.session_opened", {"hosts": ["a.example"]}, "may reach a.example"),
        (
            "browser.downloaded",
            {"code": "executable", "text": f"{'0' * 26} {'ab' * 32} a.csv: quarantine"},
            "a.csv: quarantine",
        ),
        ("pairing.code_created", {"method": "qr", "kind": "worker"}, "a QR code for a worker"),
        ("policy.rejected", {"errors": ["a.cedar:1: no\n  1 | permit"]}, "a.cedar:1: no"),
        ("policy.swapped", {"old": "ab" * 32, "new": "cd" * 32}, "cdcdcdcdcdcd instead of abababababab"),
    ],
)
def test_kinds_with_words_of_their_own(kind: str, payload: object, words: str) -> None:
    assert describe_event(event(payload, kind)) == words


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"error": {"code": "tool.unknown", "message": "no"}}, "tool.unknown"),
        ({"refusal": REFUSAL}, "egress.host_not_allowed"),
        ({"code": "lease.too_late"}, "lease.too_late"),
        ({"outcome": "deny", "reasons": ["policy.no_permit"]}, "policy.no_permit"),
        ({"outcome": "allow", "reasons": ["policy.permitted"]}, ""),
        ({"error": None, "code": ""}, ""),
        (b"not json", ""),
    ],
)
def test_the_code_behind_the_words_stays(payload: object, code: str) -> None:
    assert code_of(event(payload)) == code


def test_what_people_do_on_pages_has_words_and_keeps_its_name() -> None:
    writes = [each for section in SECTIONS for each in section.writes if each.recorded]
    names = {each.name for each in (*writes, *(each for section in SECTIONS for each in section.downloads))}
    for name in names:
        entry = event({"action": name}, "console.action_done")
        assert name not in describe_event(entry) and code_of(entry) == name


def test_every_kind_with_words_of_its_own_bears_an_empty_payload() -> None:
    for kind in SENTENCES:
        describe_event(event({}, kind))
