from typing import Any

import pytest

from palyra.pipeline.domain.approval import Approval, ApprovalBinding, ApprovalState
from palyra.server.mcp.client_view import (
    INSTRUCTIONS,
    UserAnswer,
    read_answer,
    render_denied,
    render_question,
    render_waiting,
)


def approval(**more: Any) -> Approval:
    binding = ApprovalBinding(
        principal="agent:bot", tool="fs.write", argument_digest="d", bundle_digest="b", workspace="/w"
    )
    known: dict[str, Any] = {
        "id": "A1",
        "state": ApprovalState.PENDING,
        "binding": binding,
        "session": "",
        "arguments": {"path": "x"},
        "touches": {"paths": ["x"], "hosts": []},
        "policies": ("baseline.sensitive-needs-approval",),
        "created_ms": 0,
        "expires_ms": 60_000,
        **more,
    }
    return Approval(**known)


def test_the_question_shows_who_what_and_what_it_touches() -> None:
    asked = render_question(approval())
    assert asked.message.startswith("agent:bot wants to call fs.write. Let it?\n") and asked.may_approve
    assert "would touch  paths: x" in asked.message and '"path": "x"' in asked.message and "hosts" not in asked.message
    assert "digest       d" in asked.message and "digest d" in asked.form["properties"]["decision"]["description"]
    assert asked.form["required"] == ["decision"] and asked.form["properties"]["decision"]["enum"] == [
        "approve",
        "deny",
    ]


@pytest.mark.promise("P-approval-shown")
def test_what_does_not_fit_the_question_cannot_be_approved_there() -> None:
    most = render_question(approval(arguments={"content": "z" * 19_000}))
    assert most.may_approve and "z" * 19_000 in most.message
    for more in ({"arguments": {"content": "z" * 20_000}}, {"touches": {"paths": ["p" * 50] * 500}}):
        asked = render_question(approval(**more))
        assert not asked.may_approve and asked.form["properties"]["decision"]["enum"] == ["deny"]
        assert "Too long to be shown here" in asked.message and "palyra approvals approve A1" in asked.message
        assert len(asked.message) < 20_000 and "zzz" not in asked.message


@pytest.mark.parametrize(
    ("action", "content", "answer"),
    [
        ("accept", {"decision": "approve"}, UserAnswer.APPROVED),
        ("accept", {"decision": "deny"}, UserAnswer.DENIED),
        ("accept", {"decision": "APPROVE"}, UserAnswer.DENIED),
        ("accept", {"decision": True}, UserAnswer.DENIED),
        ("accept", None, UserAnswer.DENIED),
        ("decline", {"decision": "approve"}, UserAnswer.DENIED),
        ("cancel", {"decision": "approve"}, UserAnswer.UNDECIDED),
    ],
)
def test_only_a_plain_yes_is_one(action: str, content: dict[str, Any] | None, answer: UserAnswer) -> None:
    assert read_answer(action, content) is answer


def test_the_agent_is_told_how_to_go_on() -> None:
    text = render_waiting(approval())
    assert "fs_write" in text and "palyra approvals approve A1" in text and "exactly the same arguments" in text
    assert "1970-01-01T00:01:00" in text
    assert "said no" in render_denied(approval())


def test_the_guide_names_what_agents_meet() -> None:
    for word in ("Denied", "approval", "workspace", "palyra://runs/", "budget", "Secrets"):
        assert word in INSTRUCTIONS
