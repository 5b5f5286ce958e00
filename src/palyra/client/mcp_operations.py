"""The endpoints about MCP servers behind Palyra."""

from collections.abc import Mapping

from palyra.client.protocol import Operation, convert_view, convert_views, get, path_of, read_answer, send_json
from palyra.client.views import McpServerView

# A server may take a while to start, on a machine that does much else.
LOOK_PATIENCE_MS = 60_000


def mcp_servers() -> Operation[tuple[McpServerView, ...]]:
    response = yield get(path_of("v1", "mcp", "servers"))
    return convert_views(read_answer(response), "servers", McpServerView)


def mcp_server(name: str) -> Operation[McpServerView]:
    response = yield get(path_of("v1", "mcp", "servers", name))
    return convert_view(read_answer(response), McpServerView)


def look_at_mcp_server(name: str) -> Operation[McpServerView]:
    """Has the server started, without hosts and secrets, to see what it offers."""
    path = path_of("v1", "mcp", "servers", name, "look")
    response = yield send_json("POST", path, {}, patience_ms=LOOK_PATIENCE_MS)
    return convert_view(read_answer(response), McpServerView)


def approve_mcp_tools(name: str, tools: Mapping[str, str]) -> Operation[McpServerView]:
    """``tools`` are those to approve, each with the digest of the definition that was reviewed."""
    response = yield send_json("POST", path_of("v1", "mcp", "servers", name, "approve"), {"tools": dict(tools)})
    return convert_view(read_answer(response), McpServerView)
