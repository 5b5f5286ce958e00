"""How a call ended, as a client's model reads it: content, structured content, and words where it did not run.

Everything a record says is kept: the ids, the error's code and the decision go along in ``_meta`` for programs.
"""

from typing import Any, Final

import msgspec

from palyra.mcp.image_result import Image, take_image
from palyra.mcp.limits import MAX_NAMES_IN_A_DENIAL
from palyra.mcp.offered_tool import PROTOCOL_CONTENT, WRAPPED
from palyra.mcp.tool_names import to_client
from palyra.tools.call import CallState
from palyra.tools.record import CallRecord

# Keys of our own in ``_meta``, under the prefix that the protocol asks for.
META_PREFIX: Final = "dev.palyra/"


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """``content`` is a list of blocks in the protocol's own form."""

    content: tuple[dict[str, Any], ...]
    structured: dict[str, Any] | None = None
    is_error: bool = False
    meta: dict[str, Any] = {}


def result_of(record: CallRecord, output_schema: dict[str, Any], *, may_use: tuple[str, ...] = ()) -> ToolResult:
    """``may_use`` are the tools that this caller may call: a denial names them."""
    meta = _meta(record)
    if record.error is not None:
        return _failed(record, output_schema, meta, may_use)
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
    blocks = [] if image is None else [_image(image)]
    return (*blocks, text(msgspec.json.encode(structured).decode())), structured


def _image(image: Image) -> dict[str, Any]:
    return {"type": "image", "data": image.data, "mimeType": image.media_type}


def _failed(record: CallRecord, schema: dict[str, Any], meta: dict[str, Any], may_use: tuple[str, ...]) -> ToolResult:
    error = record.error or {}
    blocks = [text(explained(record, may_use))]
    if record.result is not None:
        # A part of what a failed call brought back is worth keeping, such as what a program printed before its end.
        blocks += _contents(record.result, schema)[0]
    return ToolResult(content=tuple(blocks), is_error=True, meta={**meta, f"{META_PREFIX}error": error})


def explained(record: CallRecord, may_use: tuple[str, ...] = ()) -> str:
    """What happened, why, and what to do instead, in words for a model."""
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
