"""A pinned definition as a tool of Palyra, and a server's result as the result of a call."""

from typing import Any, Final

from palyra.mcp.behind.definition import ToolDefinition
from palyra.mcp.behind.server_plan import MCP_EXECUTOR, ServerPlan
from palyra.mcp.offered_tool import PROTOCOL_CONTENT
from palyra.tools.budget import BudgetKind
from palyra.tools.spec import ToolCapability, ToolMetadata, ToolSpec, ToolTier, Touches

MAX_MESSAGE_CHARS: Final = 500
OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "content": {"type": "array", "items": {"type": "object"}},
        "structured": {},
        "is_error": {"type": "boolean"},
    },
    "required": ["content", "is_error"],
    "additionalProperties": False,
    PROTOCOL_CONTENT: True,
}


def spec_of(server: str, plan: ServerPlan, definition: ToolDefinition, max_bytes: int) -> ToolSpec:
    """What it can touch is what its server is given: what the server says of it has no part in that."""
    capabilities = {ToolCapability.FILESYSTEM_READ}
    if not plan.read_only:
        capabilities.add(ToolCapability.FILESYSTEM_WRITE)
    if plan.hosts:
        capabilities.add(ToolCapability.NETWORK)
    if plan.secrets:
        capabilities.add(ToolCapability.SECRETS_READ)
    touched = Touches(hosts=plan.hosts, secrets=tuple(dict.fromkeys(plan.secrets.values())))
    reserved = {BudgetKind.EGRESS_BYTES: max_bytes} if plan.hosts else {}
    return ToolSpec(
        name=definition.name_behind(server),
        title=definition.title or definition.name,
        description=definition.description,
        input_schema=definition.input_schema,
        output_schema=OUTPUT,
        metadata=ToolMetadata(capabilities=frozenset(capabilities)),
        tier=ToolTier.C,
        executor=MCP_EXECUTOR,
        definition=definition.digest,
        touches=lambda _arguments: touched,
        reserves=lambda _arguments: reserved,
    )


def result_of_server(told: dict[str, Any]) -> dict[str, Any]:
    """``told`` is a result in the protocol's own form."""
    return {
        "content": list(told.get("content", [])),
        "structured": told.get("structuredContent"),
        "is_error": bool(told.get("isError", False)),
    }


def words_of(result: dict[str, Any]) -> str:
    """What a result says in text, for the message of an error."""
    texts = [str(block.get("text", "")) for block in result["content"] if block.get("type") == "text"]
    return " ".join(texts)[:MAX_MESSAGE_CHARS] or "the server gave no reason"
