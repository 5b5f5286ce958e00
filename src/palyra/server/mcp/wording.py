"""Text for agents and their users: the guide of the server, the approval form, and how a call goes on.

Where the client can ask its user, and policy lets that user decide, the question is a small form. Elsewhere the agent
gets the approval's id and how a person approves; the same call made again then runs. The approval is bound to
principal, tool and arguments, so no state of the call is kept here.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.clock import rfc3339
from palyra.pipeline.domain.approval import Approval
from palyra.server.mcp.tools import to_client

NAME: Final = "palyra"
TITLE: Final = "Palyra"
INSTRUCTIONS: Final = """\
Palyra runs tools in sandboxes, under policies that the user wrote, and records every call.

- The tools listed are those you may call. Names use _ where Palyra's own documents use a dot: fs_read is fs.read.
- Files live in one workspace; paths are relative to it. Programs (process_run) take a program and its arguments: there
  is no shell, and interpreters may be refused. Programs have no network beyond the hosts that were allowed.
- "Denied" means policy says no: the same call will be denied again. The message says what would be allowed and which
  change a person could make. Choose another way, or tell the user.
- "needs a person's approval" means: ask the user to approve the id you were given, then make exactly the same call
  again. Changed arguments are another request.
- "Refused" or an error about limits tells which limit; ask for less, or narrow the call.
- Calls of one session share a run, with its budget of calls, time and bytes. Handles (background programs, browser
  sessions) work within that run. Every result has the run's and the call's id in its _meta.
- What happened is readable: palyra://runs/{run_id} is the timeline of your run, palyra://calls/{call_id} one
  call with its decision, what was enforced on it, and its signed statement.
- Secrets are put into requests on their way out. You never see them, and need not ask for them.
"""
# The question in a result that needs input, and the field of its form.
QUESTION: Final = "approval"
FIELD: Final = "decision"
APPROVE: Final = "approve"
DENY: Final = "deny"
# Characters of the arguments in the question; `palyra approvals show` has all of them.
MAX_ARGUMENT_CHARS: Final = 2_000
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


class UserAnswer(StrEnum):
    """The answer of the client's user."""

    APPROVED = "approved"
    DENIED = "denied"
    # The user closed the form: the request keeps waiting for a person.
    UNDECIDED = "undecided"


def render_question(approval: Approval) -> str:
    """Describe the call to the person who decides: first what it would touch, then its arguments."""
    lines = [f"{approval.binding.principal} wants to call {approval.binding.tool}. Let it?"]
    touched = {name: values for name, values in approval.touches.items() if values}
    lines += [f"{name}: {', '.join(map(str, values))}" for name, values in sorted(touched.items())]
    text = msgspec.json.encode(approval.arguments).decode()
    if len(text) > MAX_ARGUMENT_CHARS:
        text = f"{text[:MAX_ARGUMENT_CHARS]}... ({len(text)} characters: `palyra approvals show {approval.id}`)"
    lines += [f"arguments: {text}", f"asked for by: {', '.join(approval.policies)}", f"approval {approval.id}"]
    return "\n".join(lines)


def read_answer(action: str, content: dict[str, Any] | None) -> UserAnswer:
    """Return the answer of a form. A form without a plain ``approve`` is a denial."""
    if action == "cancel":
        return UserAnswer.UNDECIDED
    approved = action == "accept" and (content or {}).get(FIELD) == APPROVE
    return UserAnswer.APPROVED if approved else UserAnswer.DENIED


def render_waiting(approval: Approval, console: str = "") -> str:
    """Tell the agent how a person approves, where the client cannot ask one. ``console`` may be empty."""
    name = to_client(approval.binding.tool)
    where = f", or at {console}" if console else ""
    return "\n".join(
        (
            f"{name} needs a person's approval before it runs. Nothing has run yet.",
            f"Approval id: {approval.id}.",
            f"Ask the user to approve it: `palyra approvals approve {approval.id}`{where}.",
            f"Then call {name} again with exactly the same arguments: it runs. Other arguments need another approval.",
            f"Unless a person decides before {rfc3339(approval.expires_ms)}, it is denied.",
        )
    )


def render_denied(approval: Approval) -> str:
    name = to_client(approval.binding.tool)
    return f"Denied: the user said no to this call of {name}. Do not repeat it; ask what they want instead."
