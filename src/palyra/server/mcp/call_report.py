"""How a call ended, as a client's model reads it: content, structured content, and words where it did not run.

Everything a record says is kept: the ids, the error's code and the decision go along in ``_meta`` for programs.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Literal

import anyio
import msgspec
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from palyra.executors.mcp_upstream.limits import MAX_NAMES_IN_A_DENIAL, MAX_SESSIONS, PROGRESS_SECONDS
from palyra.executors.mcp_upstream.spec import PROTOCOL_CONTENT
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.server.mcp.handshake import NAME
from palyra.server.mcp.service import News, ToolCall
from palyra.server.mcp.tools import WRAPPED, Image, take_image, to_client

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


# Which log messages a client wants of its calls: none before it has said so.
#
# Clients of the revisions with a handshake say it once for their session; those after say it with a request, and the
# library keeps to that itself.

# The least serious first, as the protocol orders them.
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
# A request of a newer revision asks for messages under this key of its ``_meta``.
REQUEST_LEVEL: Final = "io.modelcontextprotocol/logLevel"
# Entries of the journal that say a call was kept from doing what it was asked for.
_WARNINGS: Final = frozenset({"call.refused", "egress.refused", "skill.refused", "vault.use_denied"})

SessionKey = tuple[str, str, str]


def level_of(kind: str) -> Literal["info", "warning"]:
    """How serious an entry of the journal is to whoever made the call."""
    return "warning" if kind in _WARNINGS else "info"


class LogLevels:
    def __init__(self) -> None:
        self._least: OrderedDict[SessionKey, str] = OrderedDict()

    def choose(self, session: SessionKey, level: str) -> None:
        self._least.pop(session, None)
        self._least[session] = level
        while len(self._least) > MAX_SESSIONS:
            self._least.popitem(last=False)

    def any_wanted(self, session: SessionKey) -> bool:
        return session in self._least

    def wanted(self, session: SessionKey, level: str) -> bool:
        least = self._least.get(session)
        return least is not None and LEVELS.index(level) >= LEVELS.index(least)


# What a client hears of its call while it runs: each step as the journal has it, as progress and as log messages.

Context = ServerRequestContext[Any, Any]


class CallTelling:
    def __init__(
        self, ctx: Context, asked: ToolCall, *, progress: bool, log: bool, wanted: Callable[[str], bool]
    ) -> None:
        self.progress = progress
        self.log = log
        self._ctx = ctx
        self._asked = asked
        self._name = to_client(asked.tool)
        self._wanted = wanted
        self._since = anyio.current_time()
        self._words = "asked for"

    async def tell(self, news: News) -> None:
        async with anyio.create_task_group() as beside:
            if self.progress:
                beside.start_soon(self._tick)
            async for kind in news:
                self._words = kind
                await self._step(kind)
            beside.cancel_scope.cancel()

    async def _tick(self) -> None:
        """Seconds in between."""
        while True:
            await self._progress()
            await anyio.sleep(PROGRESS_SECONDS)

    async def _progress(self) -> None:
        elapsed = round(anyio.current_time() - self._since, 3)
        await self._ctx.session.report_progress(elapsed, None, f"{self._name}: {self._words}")

    async def _step(self, kind: str) -> None:
        if self.progress:
            await self._progress()
        level = level_of(kind)
        # A newer revision's own level is kept to by the library.
        if self.log and (self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or self._wanted(level)):
            told = {"event": kind, "tool": self._name, "call_id": self._asked.call_id, "run_id": self._asked.run_id}
            await self._ctx.session.send_log_message(level, told, NAME, self._ctx.request_id)
