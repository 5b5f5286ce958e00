"""The result of a call as its client reads it, and the progress of a call that runs.

A model reads the content. Programs find the ids, the error's code and the decision in ``_meta``.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import anyio
import msgspec
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from palyra.executors.mcp_upstream.limits import MAX_NAMES_IN_A_DENIAL, PROGRESS_SECONDS
from palyra.executors.mcp_upstream.spec import PROTOCOL_CONTENT
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.server.mcp.backend import CallEvents, ToolCall
from palyra.server.mcp.tools import WRAPPED, Image, take_image, to_client
from palyra.server.mcp.wording import NAME

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
    blocks = [] if image is None else [_image(image)]
    return (*blocks, text(msgspec.json.encode(structured).decode())), structured


def _image(image: Image) -> dict[str, Any]:
    return {"type": "image", "data": image.data, "mimeType": image.media_type}


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


Context = ServerRequestContext[Any, Any]
# Events that report that a call was kept from its work.
_WARNINGS: Final = frozenset({"call.refused", "egress.refused", "skill.refused", "vault.use_denied"})


def level_of(kind: str) -> Literal["info", "warning"]:
    return "warning" if kind in _WARNINGS else "info"


class CallProgress:
    """Sends the steps of a running call to its client, as progress and as log messages."""

    def __init__(
        self, ctx: Context, call: ToolCall, *, progress: bool, log: bool, wanted: Callable[[str], bool]
    ) -> None:
        self._ctx = ctx
        self._call = call
        self._progress = progress
        self._log = log
        self._name = to_client(call.tool)
        self._wanted = wanted
        self._since = anyio.current_time()
        self._newest = "asked for"

    async def send(self, events: CallEvents) -> None:
        """Send a message for each event, and progress every few seconds, until the events end."""
        async with anyio.create_task_group() as beside:
            if self._progress:
                beside.start_soon(self._tick)
            async for kind in events:
                self._newest = kind
                await self._send_step(kind)
            beside.cancel_scope.cancel()

    async def _tick(self) -> None:
        while True:
            await self._send_progress()
            await anyio.sleep(PROGRESS_SECONDS)

    async def _send_progress(self) -> None:
        elapsed = round(anyio.current_time() - self._since, 3)
        await self._ctx.session.report_progress(elapsed, None, f"{self._name}: {self._newest}")

    async def _send_step(self, kind: str) -> None:
        if self._progress:
            await self._send_progress()
        level = level_of(kind)
        # The protocol's library filters by the level of a newer revision.
        if self._log and (self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or self._wanted(level)):
            data = {"event": kind, "tool": self._name, "call_id": self._call.call_id, "run_id": self._call.run_id}
            await self._ctx.session.send_log_message(level, data, NAME, self._ctx.request_id)
