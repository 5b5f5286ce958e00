from pathlib import Path

import pytest

from fakes.command_line import CommandLine, command_line_in, use_tiny_api
from fakes.tiny_api import TinyApi
from palyra.cli.commands.approvals import render_approval, render_verdict
from palyra.client.protocol import convert_view
from palyra.client.views import ApprovalView

APPROVAL = {
    "id": "01AP",
    "state": "pending",
    "principal": "agent:a",
    "tool": "fs.write",
    "arguments": {"path": "x", "content": "safe\nstate  approved\x1b[2J\u202e"},
    "argument_digest": "ab",
    "touches": {"paths": ["a\x1bb", "c"], "hosts": []},
    "policies": ["baseline.sensitive"],
    "reasons": ["it writes"],
    "meaning": "agent:a may write once",
    "expires_at": "2026-01-01T00:00:00.000Z",
}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> TinyApi:
    return use_tiny_api(monkeypatch)


@pytest.fixture
def palyra(tmp_path: Path) -> CommandLine:
    return command_line_in(tmp_path)


def test_a_request_is_shown_in_full_and_cannot_redraw_itself() -> None:
    text = render_approval(convert_view(APPROVAL, ApprovalView))
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines)
    for part in ("agent:a", "fs.write", "baseline.sensitive", "it writes", "agent:a may write once", "2026-01-01"):
        assert part in text
    assert '"content": "safe\\nstate  approved\\u001b[2J\\u202e"' in text
    assert [line for line in lines if line.startswith("state")] == ["state        pending"]
    assert 'paths: "a\\u001bb"' in text and "paths: c" in text
    assert "without an answer it is denied" in text


def test_a_request_that_a_yes_would_not_cover_says_so() -> None:
    text = render_approval(convert_view({**APPROVAL, "outdated": "it was asked\x1b long ago"}, ApprovalView))
    assert "if approved  nothing now: it was asked\\x1b long ago" in text
    assert "may write once" not in text


def test_a_verdict_says_what_it_means() -> None:
    view = convert_view({**APPROVAL, "state": "approved", "decided_by": "user:o"}, ApprovalView)
    assert render_verdict(view) == "approved by user:o: agent:a may write once"


def test_list_and_show(palyra: CommandLine, api: TinyApi) -> None:
    assert "fs.write" in palyra("approvals", "list").out
    palyra("approvals", "list", "--state", "all")
    asked = [one["query"] for one in api.seen if one["path"] == "/v1/approvals"]
    assert asked == [{"state": "pending"}, {}]
    assert palyra("approvals", "list", "--json").document["data"]["approvals"][0]["tool"] == "fs.write"
    assert palyra("approvals", "show", "a", "--json").document["data"]["state"] == "pending"


def test_approve_sends_what_was_said(palyra: CommandLine, api: TinyApi, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"path": "x"}')
    ended = palyra(
        "approvals", "approve", "a", "--scope", "pattern", "--pattern", f"@{tmp_path / 'p.json'}",
        "--ttl", "60", "--reason", "because", "--digest", "ab", "--as", "user:x",
    )  # fmt: skip
    assert ended.status == 0
    assert api.seen[-1]["body"] == {
        "decision": "approve",
        "scope": "pattern",
        "pattern": {"path": "x"},
        "ttl_seconds": 60,
        "reason": "because",
        "argument_digest": "ab",
        "as": "user:x",
    }


def test_nobody_approves_by_id_what_nobody_saw(palyra: CommandLine, api: TinyApi) -> None:
    for words in ((), ("--json",)):
        ended = palyra("approvals", "approve", "a", *words)
        assert ended.status == 2 and "approval.not_read" in ended.out + ended.err
    assert all(one["method"] == "GET" for one in api.seen)
    assert palyra("approvals", "approve", "a", "--yes").status == 0
    assert api.seen[-1]["body"]["decision"] == "approve"


def test_deny_sends_what_was_said(palyra: CommandLine, api: TinyApi) -> None:
    assert palyra("approvals", "deny", "a", "--reason", "no", "--as", "user:x").status == 0
    assert api.seen[-1]["body"] == {"decision": "deny", "reason": "no", "as": "user:x"}


@pytest.mark.parametrize("pattern", ["[]", '{"a":1,"a":2}', "{", "7"])
def test_a_pattern_is_a_strict_object(palyra: CommandLine, api: TinyApi, pattern: str) -> None:
    assert palyra("approvals", "approve", "a", "--scope", "pattern", "--pattern", pattern).status == 2
    assert api.seen == []
