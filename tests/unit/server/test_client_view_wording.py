from typing import Any

import pytest

from palyra.pipeline.domain.approval import Approval, ApprovalBinding, ApprovalState
from palyra.server.mcp.client_view import (
    FORM,
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
    assert "agent:bot wants to call fs.write" in asked and "paths: x" in asked and '{"path":"x"}' in asked
    assert "hosts" not in asked
    long = render_question(approval(arguments={"content": "z" * 9000}))
    assert len(long) < 3000 and "palyra approvals show A1" in long


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
    assert FORM["required"] == ["decision"]


def test_the_guide_names_what_agents_meet() -> None:
    for word in ("Denied", "approval", "workspace", "palyra://runs/", "budget", "Secrets"):
        assert word in INSTRUCTIONS
