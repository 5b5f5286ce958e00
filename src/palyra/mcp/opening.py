"""How a conversation begins, answered without the protocol's library: it takes longer to load than a client wants to
wait for its tools.

Only what every client says first, in the shape every client says it in, is answered here, word for word as the library
answers it. Whatever else comes is the library's, which is told what was said before.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from palyra.mcp.instructions import INSTRUCTIONS
from palyra.mcp.offered_tool import OfferedTool

NAME: Final = "palyra"
TITLE: Final = "Palyra"
# The revisions that begin with a handshake, and the one whose requests each carry their own.
HANDSHAKE_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_REVISION: Final = "2026-07-28"
CAPABILITIES: Final[dict[str, Any]] = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": False},
    "tools": {"listChanged": False},
}
# More of these than any client's first words have, and fewer than the library follows into each other: what is nested
# deeper than it reads must not be answered here.
MAX_BRACKETS: Final = 128
_ENVELOPE: Final = "io.modelcontextprotocol/"
_encode = msgspec.json.Encoder().encode


class _Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a client says of itself: it may say more than anybody here understands."""


class _Exact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What has a field more is something that only the library understands."""


class _Roots(_Told, frozen=True, kw_only=True):
    list_changed: bool | None = None


class _Sampling(_Told, frozen=True, kw_only=True):
    context: dict[str, Any] | None = None
    tools: dict[str, Any] | None = None


class _Elicitation(_Told, frozen=True, kw_only=True):
    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class _Tasks(_Told, frozen=True, kw_only=True):
    list: dict[str, Any] | None = None
    cancel: dict[str, Any] | None = None
    requests: dict[str, dict[str, dict[str, Any]]] | None = None


class _Capabilities(_Told, frozen=True, kw_only=True):
    roots: _Roots | None = None
    sampling: _Sampling | None = None
    elicitation: _Elicitation | None = None
    tasks: _Tasks | None = None
    experimental: dict[str, dict[str, Any]] | None = None
    extensions: dict[str, dict[str, Any]] | None = None


class _Icon(_Exact, frozen=True, kw_only=True):
    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None


class _Client(_Told, frozen=True, kw_only=True):
    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[_Icon] | None = None


class _Handshake(_Exact, frozen=True, kw_only=True):
    protocol_version: str
    capabilities: _Capabilities
    client_info: _Client


class _Envelope(_Exact, frozen=True, kw_only=True):
    version: str = msgspec.field(name=f"{_ENVELOPE}protocolVersion")
    client: _Client | None = msgspec.field(name=f"{_ENVELOPE}clientInfo", default=None)
    capabilities: _Capabilities = msgspec.field(name=f"{_ENVELOPE}clientCapabilities")


class _Enveloped(_Exact, frozen=True, kw_only=True):
    meta: _Envelope = msgspec.field(name="_meta")


class _Empty(_Exact, frozen=True, kw_only=True):
    pass


class _Message(_Exact, frozen=True, kw_only=True):
    jsonrpc: str
    method: str
    id: int | str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw()


class Reply(msgspec.Struct, frozen=True):
    line: bytes


class ToolsAsked(msgspec.Struct, frozen=True):
    """The client wants its tools: ``Opening.tools`` makes the answer of them."""

    id: int | str
    modern: bool


class Noted(msgspec.Struct, frozen=True):
    """Nothing is said to it."""


class ForTheLibrary(msgspec.Struct, frozen=True):
    pass


Step = Reply | ToolsAsked | Noted | ForTheLibrary
_decode_message = msgspec.json.Decoder(_Message).decode
_decode_handshake = msgspec.json.Decoder(_Handshake).decode
_decode_enveloped = msgspec.json.Decoder(_Enveloped).decode
_decode_empty = msgspec.json.Decoder(_Empty).decode


class Opening:
    """One conversation. ``replay`` is what the library has to hear before anything else; its answers to that have been
    given already."""

    def __init__(self, version: str) -> None:
        self._server = {"name": NAME, "title": TITLE, "version": version}
        self._modern: bool | None = None
        self._greeted = False
        self._handed_over = False
        self.replay: list[bytes] = []

    def take(self, line: bytes | None) -> Step:
        step = ForTheLibrary() if line is None else self._step(line)
        if isinstance(step, ForTheLibrary):
            self._handed_over = True
        return step

    def _step(self, line: bytes) -> Step:
        if line.count(b"[") + line.count(b"{") > MAX_BRACKETS:
            return ForTheLibrary()
        try:
            message = _decode_message(line)
            if message.jsonrpc != "2.0":
                return ForTheLibrary()
            if message.id is msgspec.UNSET:
                return self._notification(line, message)
            return self._request(line, message, message.id)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return ForTheLibrary()

    def _notification(self, line: bytes, message: _Message) -> Step:
        known = message.method == "notifications/initialized"
        if bytes(message.params):
            _decode_empty(message.params)
        if not known or self._modern is not False or self._greeted or self._handed_over:
            return ForTheLibrary()
        self._greeted = True
        self.replay.append(line)
        return Noted()

    def _request(self, line: bytes, message: _Message, number: int | str) -> Step:
        if message.method == "initialize" and self._modern is None and not self._handed_over:
            return self._shake_hands(line, number, _decode_handshake(message.params))
        if self._modern is False:
            if bytes(message.params):
                _decode_empty(message.params)
            if message.method == "ping":
                return _reply(number, {})
            return ToolsAsked(number, modern=False) if message.method == "tools/list" else ForTheLibrary()
        return self._enveloped(line, message, number)

    def _shake_hands(self, line: bytes, number: int | str, said: _Handshake) -> Step:
        self._modern = False
        self.replay.append(line)
        revision = said.protocol_version
        result = {
            "capabilities": CAPABILITIES,
            "instructions": INSTRUCTIONS,
            "protocolVersion": revision if revision in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[-1],
            "serverInfo": self._server,
        }
        return _reply(number, result)

    def _enveloped(self, line: bytes, message: _Message, number: int | str) -> Step:
        if message.method not in ("server/discover", "tools/list") or (self._modern is None and self._handed_over):
            return ForTheLibrary()
        if _decode_enveloped(message.params).meta.version != MODERN_REVISION:
            return ForTheLibrary()
        if self._modern is None:
            # The first request says which generation this is: the library has to see it.
            self._modern = True
            self.replay.append(line)
        if message.method == "tools/list":
            return ToolsAsked(number, modern=True)
        found = {"capabilities": CAPABILITIES, "instructions": INSTRUCTIONS, "supportedVersions": [MODERN_REVISION]}
        return _reply(number, {**found, **self._modern_parts()})

    def tools(self, asked: ToolsAsked, tools: Iterable[OfferedTool]) -> bytes:
        listed = {"tools": [tool_document(tool) for tool in tools]}
        return _reply(asked.id, {**listed, **self._modern_parts()} if asked.modern else listed).line

    def _modern_parts(self) -> dict[str, Any]:
        return {
            "cacheScope": "private",
            "resultType": "complete",
            "ttlMs": 0,
            "_meta": {f"{_ENVELOPE}serverInfo": self._server},
        }


def tool_document(tool: OfferedTool) -> dict[str, Any]:
    """A tool in the protocol's own form."""
    document: dict[str, Any] = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": {
            "title": tool.title,
            "readOnlyHint": tool.hints.read_only,
            "destructiveHint": tool.hints.destructive,
            "idempotentHint": tool.hints.idempotent,
            "openWorldHint": tool.hints.open_world,
        },
    }
    return document if tool.output_schema is None else {**document, "outputSchema": tool.output_schema}


def _reply(number: int | str, result: dict[str, Any]) -> Reply:
    return Reply(_encode({"jsonrpc": "2.0", "id": number, "result": result}))
