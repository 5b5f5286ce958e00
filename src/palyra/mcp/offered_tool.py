"""A tool as a client sees it: name, title, schemas, and hints that are true.

The hints follow from what the tool can touch, never from what somebody wrote about it: a client may skip a question to
its user because of them.
"""

from typing import Any, Final

import msgspec

from palyra.mcp.image_result import without_image
from palyra.mcp.tool_names import to_client
from palyra.tools.spec import ToolCapability, ToolSpec

_READS: Final = frozenset({ToolCapability.FILESYSTEM_READ, ToolCapability.ARTIFACTS_READ})
_WORLD: Final = frozenset(
    {ToolCapability.NETWORK, ToolCapability.BROWSER, ToolCapability.DEVICE, ToolCapability.CHANNELS}
)
# An output schema with this key holds content of the protocol itself, from a server behind Palyra.
PROTOCOL_CONTENT: Final = "x-mcp-content"
# What a result that is no object is put under: the protocol has only objects.
WRAPPED: Final = "result"


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    hints: Hints


def hints_of(spec: ToolSpec) -> Hints:
    capabilities = spec.metadata.capabilities
    reads_only = capabilities <= _READS and not spec.metadata.grave and not spec.changes_state
    return Hints(
        read_only=reads_only,
        # Whatever may change something may change it for the worse: nothing here is known to add only.
        destructive=not reads_only,
        idempotent=spec.idempotent or reads_only,
        open_world=bool(capabilities & _WORLD),
    )


def offered(spec: ToolSpec) -> OfferedTool:
    return OfferedTool(
        name=to_client(spec.name),
        title=spec.title,
        description=spec.description,
        input_schema=spec.input_schema,
        output_schema=client_schema(spec.output_schema),
        hints=hints_of(spec),
    )


def tool_document(tool: OfferedTool) -> dict[str, Any]:
    """The tool in the protocol's own form."""
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


def client_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of the structured content, which is an object and holds no image. What a server behind Palyra
    structures is its own."""
    if PROTOCOL_CONTENT in schema:
        return None
    if schema.get("type") == "object":
        return without_image(schema)
    return {"type": "object", "properties": {WRAPPED: schema}, "required": [WRAPPED]}
