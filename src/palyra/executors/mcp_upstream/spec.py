"""Definitions of upstream tools, prompts and resources: their names and digests here, and their specs.

Every text that a model or a person reads is part of the digest: a server that changes one word has another tool.
Prompts and resources are listed, reviewed and called in the same way: each is a tool of its own kind.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.canonical import digest_of
from palyra.errors import Failed
from palyra.executors.mcp_upstream.limits import (
    MAX_DEFINITION_BYTES,
    MAX_SERVER_TOOLS,
    MAX_TEMPLATE_CHARS,
    MAX_TEMPLATE_VARIABLES,
)
from palyra.executors.mcp_upstream.settings import MCP_EXECUTOR, ServerPlan
from palyra.ids import InvalidToolName, ToolName
from palyra.json_schema import SchemaCheck
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.spec import AccessedResources, ToolCapability, ToolMetadata, ToolSpec, ToolTier

FORMAT: Final = "palyra.mcp.definition.v1"
_OTHER: Final = re.compile(r"[^a-z0-9_.-]")
# The variables of a template that names them one by one: `{id}`. Other forms are not offered.
_VARIABLE: Final = re.compile(r"\{([A-Za-z0-9_]+)\}")
# The scheme of Palyra's own resources.
_OWN_SCHEME: Final = "palyra:"


class DefinitionRefused(Failed):
    code = "mcp.definition_refused"
    hint = "the server describes a tool in a way that cannot be offered; its author can change that"


class DefinitionKind(StrEnum):
    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"
    # A resource whose address has variables in it.
    TEMPLATE = "template"


# The prefix of a name after the server's.
_PREFIX: Final = {
    DefinitionKind.TOOL: "",
    DefinitionKind.PROMPT: "prompt.",
    DefinitionKind.RESOURCE: "resource.",
    DefinitionKind.TEMPLATE: "resource.",
}


_OF_OTHER_KINDS: Final = frozenset({"kind", "uri", "media_type"})


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One definition. ``name`` is the server's own; ``uri`` and ``media_type`` are those of a resource."""

    name: str
    title: str = ""
    description: str = ""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    kind: DefinitionKind = DefinitionKind.TOOL
    uri: str = ""
    media_type: str = ""

    @property
    def tool(self) -> str:
        """The name here, after the server's."""
        return _PREFIX[self.kind] + self.own_name

    @property
    def own_name(self) -> str:
        """The server's name for it, in the characters of tool names."""
        return _OTHER.sub("-", self.name.lower())

    @property
    def digest(self) -> str:
        fields = msgspec.structs.asdict(self)
        if self.kind is DefinitionKind.TOOL:
            # The digest of a tool is older than the other kinds.
            fields = {name: value for name, value in fields.items() if name not in _OF_OTHER_KINDS}
        return digest_of({"format": FORMAT, **fields})

    def name_behind(self, server: str) -> ToolName:
        return ToolName.parse(f"{server}.{self.tool}")


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The definitions of a server that clients may get, and the reason for each other one."""

    definitions: tuple[ToolDefinition, ...]
    refused: dict[str, str] = {}


def read_listing(server: str, definitions: Iterable[tuple[DefinitionKind, dict[str, Any]]]) -> Listing:
    offered = list(definitions)
    if len(offered) > MAX_SERVER_TOOLS:
        raise DefinitionRefused(f"{server} offers {len(offered)} tools; at most {MAX_SERVER_TOOLS} are taken")
    found: dict[str, ToolDefinition] = {}
    refused: dict[str, str] = {}
    for kind, raw in offered:
        shown = str(raw.get("name", ""))[:128]
        try:
            definition = read_definition(server, raw, kind)
            if definition.tool in found:
                raise DefinitionRefused(f"its name here is that of {found[definition.tool].name!r} too")
        except (DefinitionRefused, InvalidToolName) as error:
            refused[shown] = error.message
        else:
            found[definition.tool] = definition
    return Listing(definitions=tuple(found.values()), refused=refused)


def read_definition(server: str, raw: dict[str, Any], kind: DefinitionKind = DefinitionKind.TOOL) -> ToolDefinition:
    if len(msgspec.json.encode(raw)) > MAX_DEFINITION_BYTES:
        raise DefinitionRefused(f"it has more than {MAX_DEFINITION_BYTES} bytes")
    known = {
        "name": raw.get("name"),
        "title": raw.get("title") or "",
        "description": raw.get("description") or "",
        "output_schema": raw.get("outputSchema"),
        "annotations": raw.get("annotations"),
        "kind": kind,
    }
    if kind in (DefinitionKind.RESOURCE, DefinitionKind.TEMPLATE):
        known["uri"] = raw.get("uri" if kind is DefinitionKind.RESOURCE else "uriTemplate") or ""
        known["media_type"] = raw.get("mimeType") or ""
    try:
        known["input_schema"] = _input_schema(kind, raw)
        definition = msgspec.convert(known, ToolDefinition)
        # Check schema and digest now: a schema with outside references or without sense is never approved.
        SchemaCheck(definition.input_schema)
        digest = definition.digest
    except (InvalidToolName, DefinitionRefused):
        raise
    except Exception as error:
        raise DefinitionRefused(f"it is malformed: {error}"[:300]) from error
    if definition.input_schema.get("type") != "object" or not digest:
        raise DefinitionRefused("its input is not an object")
    if definition.uri.lower().startswith(_OWN_SCHEME):
        raise DefinitionRefused("its address is one of Palyra's own")
    definition.name_behind(server)
    return definition


def _input_schema(kind: DefinitionKind, raw: dict[str, Any]) -> Any:
    """Return the input schema. Palyra makes one for prompts and resources, which have none."""
    match kind:
        case DefinitionKind.TOOL:
            return raw.get("inputSchema")
        case DefinitionKind.PROMPT:
            arguments = raw.get("arguments") or []
            required = [each["name"] for each in arguments if each.get("required")]
            return _strings({each["name"]: str(each.get("description") or "") for each in arguments}, required)
        case DefinitionKind.RESOURCE:
            return _strings({}, [])
        case DefinitionKind.TEMPLATE:
            variables = _variables(raw["uriTemplate"])
            return _strings(dict.fromkeys(variables, ""), variables)


def _variables(template: str) -> list[str]:
    """Return the variables of a template. Refuse one that does not separate them: it would match every address."""
    found = _VARIABLE.findall(template)
    if set("{}") & set(_VARIABLE.sub("", template)):
        raise DefinitionRefused("its address has variables of a form that is not offered")
    if len(set(found)) != len(found) or "}{" in template:
        raise DefinitionRefused("its address has a variable twice, or two with nothing between them")
    if len(template) > MAX_TEMPLATE_CHARS or len(found) > MAX_TEMPLATE_VARIABLES:
        raise DefinitionRefused(f"its address is longer than {MAX_TEMPLATE_CHARS}, or has too many variables")
    return found


def _strings(names: dict[str, str], required: list[str]) -> dict[str, Any]:
    properties = {name: {"type": "string", **({"description": text} if text else {})} for name, text in names.items()}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# An output schema with this key holds content of the protocol itself, from an upstream server.
PROTOCOL_CONTENT: Final = "x-mcp-content"
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
    """Make the spec of a tool. Its capabilities follow from the server's settings, never from the definition."""
    capabilities = {ToolCapability.FILESYSTEM_READ}
    if not plan.read_only:
        capabilities.add(ToolCapability.FILESYSTEM_WRITE)
    if plan.hosts:
        capabilities.add(ToolCapability.NETWORK)
    if plan.secrets:
        capabilities.add(ToolCapability.SECRETS_READ)
    touched = AccessedResources(hosts=plan.hosts, secrets=tuple(dict.fromkeys(plan.secrets.values())))
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


def result_of_server(result: dict[str, Any]) -> dict[str, Any]:
    """Convert a result of the protocol to the result of a call."""
    return {
        "content": list(result.get("content", [])),
        "structured": result.get("structuredContent"),
        "is_error": bool(result.get("isError", False)),
    }


def words_of(result: dict[str, Any]) -> str:
    """Join the text of a result, for the message of an error."""
    texts = [str(block.get("text", "")) for block in result["content"] if block.get("type") == "text"]
    return " ".join(texts)[:MAX_MESSAGE_CHARS] or "the server gave no reason"
