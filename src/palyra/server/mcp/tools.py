"""Tools as a client of the protocol sees them: names, schemas, hints, and images in results.

A tool returns an image if its output schema has the properties ``image_base64`` and ``media_type``. The client gets it
as image content, and not a second time as text. Hints follow from what the tool can touch, never from its description:
a client may skip a question to its user because of them.
"""

import re
from typing import Any, Final

import msgspec

from palyra.executors.mcp_upstream.spec import PROTOCOL_CONTENT
from palyra.ids import ToolName
from palyra.pipeline.domain.spec import ToolCapability, ToolSpec

DATA: Final = "image_base64"
MEDIA_TYPE: Final = "media_type"


class Image(msgspec.Struct, frozen=True, kw_only=True):
    data: str
    media_type: str


def carries_image(schema: dict[str, Any]) -> bool:
    properties: dict[str, Any] = schema.get("properties", {})
    return {DATA, MEDIA_TYPE} <= properties.keys()


def without_image(schema: dict[str, Any]) -> dict[str, Any]:
    if not carries_image(schema):
        return schema
    properties = {name: part for name, part in schema["properties"].items() if name != DATA}
    required = [name for name in schema.get("required", []) if name != DATA]
    return {**schema, "properties": properties, "required": required}


def take_image(schema: dict[str, Any], result: Any) -> tuple[Any, Image | None]:
    """Split the result into the rest and its image, or None."""
    if not carries_image(schema) or not isinstance(result, dict):
        return result, None
    data, media_type = result.get(DATA), result.get(MEDIA_TYPE)
    rest = {name: value for name, value in result.items() if name != DATA}
    if not isinstance(data, str) or not isinstance(media_type, str) or not media_type.startswith("image/"):
        return rest, None
    return rest, Image(data=data, media_type=media_type)


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
        # No tool is known to add only, so every change may destroy.
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
    """Return the tool in the form of the protocol."""
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
    """Return the schema of the structured content: an object without an image. Upstream tools have none."""
    if PROTOCOL_CONTENT in schema:
        return None
    if schema.get("type") == "object":
        return without_image(schema)
    return {"type": "object", "properties": {WRAPPED: schema}, "required": [WRAPPED]}
