"""Tools, results and questions as a client of the protocol reads them.

A tool returns an image if its output schema has the properties ``image_base64`` and ``media_type``. The client gets it
as image content, and not a second time as text. Hints follow from what the tool can touch, never from its description:
a client may skip a question to its user because of them.

A model reads the content of a result. Programs find the ids, the error's code and the decision in ``_meta``.

If the client can ask its user, and policy lets that user decide, the question is a small form. Otherwise the agent gets
the approval's id and how a person approves. The same call made again then runs. The approval is bound to principal,
tool and arguments, so no state of the call is kept here.
"""

import re
from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.clock import rfc3339
from palyra.executors.mcp_upstream.limits import MAX_NAMES_IN_A_DENIAL
from palyra.executors.mcp_upstream.spec import PROTOCOL_CONTENT
from palyra.ids import ToolName
from palyra.pipeline.domain.approval import Approval
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.pipeline.domain.call_text import CallField, describe_approval, render_call
from palyra.pipeline.domain.spec import ToolCapability, ToolSpec
from palyra.visible_text import spell

DATA: Final = "image_base64"
MEDIA_TYPE: Final = "media_type"


def carries_image(schema: dict[str, Any]) -> bool:
    properties: dict[str, Any] = schema.get("properties", {})
    return {DATA, MEDIA_TYPE} <= properties.keys()


def without_image(schema: dict[str, Any]) -> dict[str, Any]:
    if not carries_image(schema):
        return schema
    properties = {name: part for name, part in schema["properties"].items() if name != DATA}
    required = [name for name in schema.get("required", []) if name != DATA]
    return {**schema, "properties": properties, "required": required}


def take_image(schema: dict[str, Any], result: Any) -> tuple[Any, dict[str, Any] | None]:
    """Split the result into the rest and its image as a block of content, or None."""
    if not carries_image(schema) or not isinstance(result, dict):
        return result, None
    data, media_type = result.get(DATA), result.get(MEDIA_TYPE)
    rest = {name: value for name, value in result.items() if name != DATA}
    if not isinstance(data, str) or not isinstance(media_type, str) or not media_type.startswith("image/"):
        return rest, None
    return rest, {"type": "image", "data": data, "mimeType": media_type}


# A client accepts letters, digits, ``_`` and ``-`` in names. A dot becomes ``_`` and an underscore ``__``. No part of a
# tool's name begins with an underscore, so a run of them has one reading: pairs, and a dot if one is left over.

_UNDERSCORES: Final = re.compile(r"_+")


def to_client(name: str) -> str:
    return name.replace("_", "__").replace(".", "_")


def from_client(raw: str) -> ToolName:
    """Return the tool that a client names. A name with dots is the tool's own."""
    if "." in raw:
        return ToolName.parse(raw)
    read = _UNDERSCORES.sub(lambda run: "_" * (len(run[0]) // 2) + "." * (len(run[0]) % 2), raw)
    return ToolName.parse(read)


_READS: Final = frozenset({ToolCapability.FILESYSTEM_READ, ToolCapability.ARTIFACTS_READ})
_WORLD: Final = frozenset(
    {ToolCapability.NETWORK, ToolCapability.BROWSER, ToolCapability.DEVICE, ToolCapability.CHANNELS}
)
# The key of a result that is not an object: the protocol has only objects.
WRAPPED: Final = "result"


def tool_document(spec: ToolSpec) -> dict[str, Any]:
    """Return the tool in the form of the protocol."""
    capabilities = spec.metadata.capabilities
    reads_only = capabilities <= _READS and not spec.metadata.grave and not spec.changes_state
    document: dict[str, Any] = {
        "name": to_client(spec.name),
        "title": spec.title,
        "description": spec.description,
        "inputSchema": spec.input_schema,
        "annotations": {
            "title": spec.title,
            "readOnlyHint": reads_only,
            # No tool is known to add only, so every change may destroy.
            "destructiveHint": not reads_only,
            "idempotentHint": spec.idempotent or reads_only,
            "openWorldHint": bool(capabilities & _WORLD),
        },
    }
    output = client_schema(spec.output_schema)
    return document if output is None else {**document, "outputSchema": output}


def client_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the structured content: an object without an image. Upstream tools have none."""
    if PROTOCOL_CONTENT in schema:
        return None
    if schema.get("type") == "object":
        return without_image(schema)
    return {"type": "object", "properties": {WRAPPED: schema}, "required": [WRAPPED]}


# The prefix that the protocol demands for our keys in ``_meta``.
META_PREFIX: Final = "dev.palyra/"


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """``content`` holds blocks in the form of the protocol."""

    content: tuple[dict[str, Any], ...]
    structured: dict[str, Any] | None = None
    is_error: bool = False
    meta: dict[str, Any] = {}


def result_of(record: CallRecord, output_schema: dict[str, Any], *, may_use: tuple[str, ...] = ()) -> ToolResult:
    """Return the result for a client. A denial names the tools in ``may_use``, which this caller may call."""
    meta = _meta(record)
    if record.error is not None:
        return _failure(record, output_schema, meta, may_use)
    content, structured = _contents(record.result, output_schema)
    return ToolResult(content=content, structured=structured, meta=meta)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _contents(result: Any, schema: dict[str, Any]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any] | None]:
    rest, image = take_image(schema, result)
    structured = rest if isinstance(rest, dict) else {WRAPPED: rest}
    if PROTOCOL_CONTENT in schema:
        own = structured.get("structured")
        return tuple(structured.get("content", ())), own if isinstance(own, dict) else None
    blocks = [] if image is None else [image]
    return (*blocks, text(msgspec.json.encode(structured).decode())), structured


def _failure(record: CallRecord, schema: dict[str, Any], meta: dict[str, Any], may_use: tuple[str, ...]) -> ToolResult:
    error = record.error or {}
    blocks = [text(explain(record, may_use))]
    if record.result is not None:
        # A failed call may have a result worth keeping, such as the output of a program before it ended.
        blocks += _contents(record.result, schema)[0]
    return ToolResult(content=tuple(blocks), is_error=True, meta={**meta, f"{META_PREFIX}error": error})


def explain(record: CallRecord, may_use: tuple[str, ...] = ()) -> str:
    """Say to a model what happened, why, and what to do instead."""
    error = record.error or {}
    name = to_client(record.tool)
    lines = [f"{_VERDICTS.get(record.state, 'Failed')}: {error.get('message', '')} [{error.get('code', '')}]"]
    if error.get("hint"):
        lines.append(f"What would help: {error['hint']}")
    if record.state is CallState.DENIED:
        lines.append("Only a person who operates Palyra can change that; repeating the call changes nothing.")
        others = [each for each in may_use if each != name][:MAX_NAMES_IN_A_DENIAL]
        lines.append(f"You may use: {', '.join(others) if others else 'no tool at all'}.")
    lines.append(f"Call {record.call_id}.")
    return "\n".join(lines)


_VERDICTS: Final = {
    CallState.DENIED: "Denied",
    CallState.REFUSED: "Refused before it ran",
    CallState.TIMED_OUT: "Ended at its deadline",
    CallState.CANCELLED: "Cancelled",
}


def _meta(record: CallRecord) -> dict[str, Any]:
    known: dict[str, Any] = {"call_id": record.call_id, "run_id": record.run_id, "status": record.state.value}
    if record.decision is not None:
        known["decision"] = {key: record.decision[key] for key in ("outcome", "policies", "reasons")}
    if record.approval_id is not None:
        known["approval_id"] = record.approval_id
    return {f"{META_PREFIX}{name}": value for name, value in known.items()}


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
- Secrets are put into requests when these leave. You never see them, and need not ask for them.
"""
# The question in a result that needs input, and the field of its form.
QUESTION: Final = "approval"
FIELD: Final = "decision"
APPROVE: Final = "approve"
DENY: Final = "deny"
# Characters of a question. More is not read in a client's form, which may cut it; the command line and the console show
# all of it.
MAX_QUESTION_CHARS: Final = 20_000


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a client's user about one approval. ``may_approve`` is False if the form cannot show the call."""

    message: str
    form: dict[str, Any]
    may_approve: bool


class UserAnswer(StrEnum):
    """The answer of the client's user."""

    APPROVED = "approved"
    DENIED = "denied"
    # The user closed the form: the request keeps waiting for a person.
    UNDECIDED = "undecided"


def render_question(approval: Approval) -> Question:
    """Describe the whole call to the person who decides. One that is too long for a form can only be denied there."""
    asks = CallField("policy asks", (spell(", ".join(approval.policies)),))
    fields = (*describe_approval(approval), asks, CallField("approval", (approval.id,)))
    head = f"{spell(approval.binding.principal)} wants to call {spell(approval.binding.tool)}. Let it?"
    message = f"{head}\n{render_call(fields)}"
    if len(message) <= MAX_QUESTION_CHARS:
        digest = approval.binding.argument_digest
        description = f"approve lets exactly this call run, once: the one with the digest {digest}"
        return Question(message=message, form=_form([APPROVE, DENY], description), may_approve=True)
    short = tuple(each for each in fields if sum(map(len, each.lines)) <= MAX_SHORT_FIELD_CHARS)
    left_out = ", ".join(each.label for each in fields if each not in short)
    where = f"Too long to be shown here: {left_out}. Read it and decide with: palyra approvals approve {approval.id}"
    description = "too long to be approved here; deny, or cancel and decide at the command line or on the console"
    message = f"{head}\n{where}\n{render_call(short)}"
    return Question(message=message, form=_form([DENY], description), may_approve=False)


# A field that is shown beside one that is too long.
MAX_SHORT_FIELD_CHARS: Final = 2_000


def _form(choices: list[str], description: str) -> dict[str, Any]:
    decision = {"type": "string", "title": "Decision", "description": description, "enum": choices}
    return {"type": "object", "properties": {FIELD: decision}, "required": [FIELD]}


def question_state(approval: Approval) -> str:
    """Return the text that a client brings back with its answer: the approval, and the digest that was shown."""
    return f"{approval.id}:{approval.binding.argument_digest}"


def read_question_state(state: str) -> tuple[str, str]:
    """Return the approval's id and the digest that was shown, which is empty in a state that is not ours."""
    approval_id, _, digest = state.partition(":")
    return approval_id, digest


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
