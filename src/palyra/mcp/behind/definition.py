"""The definition of a tool as its server tells it, and the name and digest that it is known by here.

Everything that a model or a person reads of a tool is part of its digest: a server that changes one word has another
tool.
"""

import re
from typing import Any, Final

import msgspec

from palyra.canonical import digest_of
from palyra.errors import Failed
from palyra.mcp.limits import MAX_DEFINITION_BYTES, MAX_SERVER_TOOLS
from palyra.tools.schema_check import SchemaCheck
from palyra.tools.spec import InvalidToolName, ToolName

FORMAT: Final = "palyra.mcp.definition.v1"
_OTHER: Final = re.compile(r"[^a-z0-9_-]")


class DefinitionRefused(Failed):
    code = "mcp.definition_refused"
    hint = "the server tells of a tool in a way that cannot be offered; its author can change that"


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """``name`` is the server's own; ``tool`` the last part of the name here."""

    name: str
    title: str = ""
    description: str = ""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None

    @property
    def tool(self) -> str:
        return _OTHER.sub("-", self.name.lower())

    @property
    def digest(self) -> str:
        return digest_of({"format": FORMAT, **msgspec.structs.asdict(self)})

    def name_behind(self, server: str) -> ToolName:
        return ToolName.parse(f"{server}.{self.tool}")


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What a server offers: the definitions that can be offered on, and why others cannot."""

    definitions: tuple[ToolDefinition, ...]
    refused: dict[str, str] = {}


def read_listing(server: str, told: list[dict[str, Any]]) -> Listing:
    if len(told) > MAX_SERVER_TOOLS:
        raise DefinitionRefused(f"{server} offers {len(told)} tools; at most {MAX_SERVER_TOOLS} are taken")
    found: dict[str, ToolDefinition] = {}
    refused: dict[str, str] = {}
    for raw in told:
        shown = str(raw.get("name", ""))[:128]
        try:
            definition = read_definition(server, raw)
            if definition.tool in found:
                raise DefinitionRefused(f"its name here is that of {found[definition.tool].name!r} too")
        except (DefinitionRefused, InvalidToolName) as error:
            refused[shown] = error.message
        else:
            found[definition.tool] = definition
    return Listing(definitions=tuple(found.values()), refused=refused)


def read_definition(server: str, raw: dict[str, Any]) -> ToolDefinition:
    if len(msgspec.json.encode(raw)) > MAX_DEFINITION_BYTES:
        raise DefinitionRefused(f"it has more than {MAX_DEFINITION_BYTES} bytes")
    known = {
        "name": raw.get("name"),
        "title": raw.get("title") or "",
        "description": raw.get("description") or "",
        "input_schema": raw.get("inputSchema"),
        "output_schema": raw.get("outputSchema"),
        "annotations": raw.get("annotations"),
    }
    try:
        definition = msgspec.convert(known, ToolDefinition)
        # Both are looked at now, so that no schema that reaches out or makes no sense is ever approved.
        SchemaCheck(definition.input_schema)
        digest = definition.digest
    except InvalidToolName:
        raise
    except Exception as error:
        raise DefinitionRefused(f"it is malformed: {error}"[:300]) from error
    if definition.input_schema.get("type") != "object" or not digest:
        raise DefinitionRefused("its input is no object")
    definition.name_behind(server)
    return definition
