"""A call that needs a person's yes: how it is put to the client's user, and how it goes on.

Where the client can ask its user, and that user may decide by policy, the question is a small form. Everywhere else the
agent is told the approval's id and how a person approves; the same call made again then runs. Nothing about the call
is kept here: the approval itself is bound to principal, tool and arguments.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.clock import rfc3339
from palyra.pipeline.domain.approval import Approval
from palyra.server.mcp.tools import to_client

# The one question of an answer that asks for more, and the field of its form.
QUESTION: Final = "approval"
FIELD: Final = "decision"
APPROVE: Final = "approve"
DENY: Final = "deny"
# What of a call is shown to the person: beyond it they should look with `palyra approvals show`.
MAX_SHOWN_ARGUMENT_CHARS: Final = 2_000
FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        FIELD: {
            "type": "string",
            "title": "Decision",
            "description": "approve lets exactly this call run, once",
            "enum": [APPROVE, DENY],
        }
    },
    "required": [FIELD],
}


class Answer(StrEnum):
    """What the person in front of the client said."""

    APPROVED = "approved"
    DENIED = "denied"
    # They closed the form: the request goes on waiting for somebody else.
    UNDECIDED = "undecided"


def question_for(approval: Approval) -> str:
    """The call in words for the person who decides; what it would touch comes before what it says of itself."""
    lines = [f"{approval.binding.principal} wants to call {approval.binding.tool}. Let it?"]
    touched = {name: values for name, values in approval.touches.items() if values}
    lines += [f"{name}: {', '.join(map(str, values))}" for name, values in sorted(touched.items())]
    shown = msgspec.json.encode(approval.arguments).decode()
    if len(shown) > MAX_SHOWN_ARGUMENT_CHARS:
        shown = (
            f"{shown[:MAX_SHOWN_ARGUMENT_CHARS]}... ({len(shown)} characters: `palyra approvals show {approval.id}`)"
        )
    lines += [f"arguments: {shown}", f"asked for by: {', '.join(approval.policies)}", f"approval {approval.id}"]
    return "\n".join(lines)


def read_answer(action: str, content: dict[str, Any] | None) -> Answer:
    """Only a plain yes is one. A form sent back with anything else is a no."""
    if action == "cancel":
        return Answer.UNDECIDED
    approved = action == "accept" and (content or {}).get(FIELD) == APPROVE
    return Answer.APPROVED if approved else Answer.DENIED


def how_to_go_on(approval: Approval, console: str = "") -> str:
    """What the agent is told when nobody could be asked through the client. ``console`` is its address, where known."""
    name = to_client(approval.binding.tool)
    where = f", or at {console}" if console else ""
    return "\n".join(
        (
            f"{name} needs a person's approval before it runs. Nothing has been done yet.",
            f"Approval id: {approval.id}.",
            f"Ask the user to approve it: `palyra approvals approve {approval.id}`{where}.",
            f"Then call {name} again with exactly the same arguments: it runs. Other arguments ask anew.",
            f"Unless a person decides before {rfc3339(approval.expires_ms)}, it is denied.",
        )
    )


def after_a_no(approval: Approval) -> str:
    name = to_client(approval.binding.tool)
    return f"Denied: the user said no to this call of {name}. Do not repeat it; ask what they want instead."
