"""Images in results: a tool returns one if its output schema has the properties ``image_base64`` and ``media_type``.

A client gets it as image content, which a model can look at, and not a second time as text.
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
    """The result without its picture, and the picture; None where there is none."""
    if not carries_image(schema) or not isinstance(result, dict):
        return result, None
    data, media_type = result.get(DATA), result.get(MEDIA_TYPE)
    rest = {name: value for name, value in result.items() if name != DATA}
    if not isinstance(data, str) or not isinstance(media_type, str) or not media_type.startswith("image/"):
        return rest, None
    return rest, Image(data=data, media_type=media_type)


# Tool names as the protocol's clients take them: letters, digits, ``_`` and ``-``.
#
# A dot becomes ``_`` and an underscore ``__``. No part of a tool's name begins with an underscore, so that every run
# of underscores reads back in one way: pairs are underscores, and one that is left over at its end is a dot.

_UNDERSCORES: Final = re.compile(r"_+")


def to_client(name: str) -> str:
    return name.replace("_", "__").replace(".", "_")


def from_client(raw: str) -> ToolName:
    """The tool that a client means. Its own name, with dots, is understood as well."""
    if "." in raw:
        return ToolName.parse(raw)
    read = _UNDERSCORES.sub(lambda run: "_" * (len(run[0]) // 2) + "." * (len(run[0]) % 2), raw)
    return ToolName.parse(read)


__all__ = ["from_client", "to_client"]


# A tool as a client sees it: name, title, schemas, and hints that are true.
#
# The hints follow from what the tool can touch, never from what somebody wrote about it: a client may skip a question
# to its user because of them.

_READS: Final = frozenset({ToolCapability.FILESYSTEM_READ, ToolCapability.ARTIFACTS_READ})
_WORLD: Final = frozenset(
    {ToolCapability.NETWORK, ToolCapability.BROWSER, ToolCapability.DEVICE, ToolCapability.CHANNELS}
)
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
