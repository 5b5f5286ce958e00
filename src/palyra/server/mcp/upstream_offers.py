"""Prompts and resources of upstream servers. A client gets each by a call of a tool, with its policy and record."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

from palyra.executors.mcp_upstream.spec import DefinitionKind, ToolDefinition
from palyra.ids import ToolName
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.server.mcp.backend import McpBackend, McpCaller, UpstreamOffer
from palyra.server.mcp.client_view import explain, render_waiting, to_client
from palyra.server.mcp.transports import approvals_page

_NOT_GIVEN: Final = -32001
_INVALID_PARAMS: Final = -32602
Context = ServerRequestContext[Any, Any]
# Makes a call of a tool for the caller.
CallTool = Callable[[McpCaller, Context, ToolName, dict[str, Any]], Awaitable[CallRecord]]


class UpstreamOffers:
    def __init__(self, backend: McpBackend, call_tool: CallTool) -> None:
        self._backend = backend
        self._call_tool = call_tool

    def prompts(self, caller: McpCaller) -> list[types.Prompt]:
        return [_prompt(offer) for offer in self._backend.offers(caller, DefinitionKind.PROMPT)]

    def prompt(self, caller: McpCaller, name: str) -> UpstreamOffer:
        for offer in self._backend.offers(caller, DefinitionKind.PROMPT):
            if name == prompt_name(offer):
                return offer
        raise MCPError(_INVALID_PARAMS, f"there is no prompt {name[:128]!r}")

    async def get_prompt(self, caller: McpCaller, ctx: Context, name: str, arguments: Any) -> types.GetPromptResult:
        offer = self.prompt(caller, name)
        result = await self._fetch(caller, ctx, offer.tool, dict(arguments or {}))
        return types.GetPromptResult.model_validate(result["structured"])

    def resources(self, caller: McpCaller) -> list[types.Resource]:
        return [
            types.Resource(uri=offer.definition.uri, **_metadata(offer.definition))
            for offer in self._backend.offers(caller, DefinitionKind.RESOURCE)
        ]

    def templates(self, caller: McpCaller) -> list[types.ResourceTemplate]:
        return [
            types.ResourceTemplate(uri_template=offer.definition.uri, **_metadata(offer.definition))
            for offer in self._backend.offers(caller, DefinitionKind.TEMPLATE)
        ]

    async def read(self, caller: McpCaller, ctx: Context, uri: str) -> types.ReadResourceResult | None:
        """Read a resource; return None where no server has this address. The first server by name answers."""
        for offer in self._backend.offers(caller, DefinitionKind.RESOURCE, DefinitionKind.TEMPLATE):
            arguments = match_uri(offer.definition, uri)
            if arguments is not None:
                result = await self._fetch(caller, ctx, offer.tool, arguments)
                contents = [block["resource"] for block in result["content"]]
                return types.ReadResourceResult.model_validate({"contents": contents})
        return None

    async def _fetch(
        self, caller: McpCaller, ctx: Context, tool: ToolName, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the result of the call. A call that did not run becomes an error of the protocol."""
        record = await self._call_tool(caller, ctx, tool, arguments)
        if record.state is CallState.NEEDS_APPROVAL and record.approval_id is not None:
            approval = await self._backend.approval(caller, record.approval_id)
            raise MCPError(_NOT_GIVEN, render_waiting(approval, approvals_page(ctx.request)))
        if record.error is not None or not isinstance(record.result, dict):
            raise MCPError(_NOT_GIVEN, explain(record), record.error)
        return record.result


def prompt_name(offer: UpstreamOffer) -> str:
    """Return the prompt's name, written like the name of a tool."""
    return to_client(f"{offer.server}.{offer.definition.own_name}")


def _prompt(offer: UpstreamOffer) -> types.Prompt:
    schema = offer.definition.input_schema
    arguments = [
        types.PromptArgument(name=name, description=part.get("description"), required=name in schema["required"])
        for name, part in schema["properties"].items()
    ]
    title, description = offer.definition.title or None, offer.definition.description or None
    return types.Prompt(name=prompt_name(offer), title=title, description=description, arguments=arguments)


def _metadata(definition: ToolDefinition) -> dict[str, Any]:
    known = {"title": definition.title, "description": definition.description, "mime_type": definition.media_type}
    return {"name": definition.name, **{name: value for name, value in known.items() if value}}


def match_uri(definition: ToolDefinition, uri: str) -> dict[str, Any] | None:
    """Return the variables of an address that belongs to the definition, or None."""
    if definition.kind is DefinitionKind.RESOURCE:
        return {} if uri == definition.uri else None
    try:
        found = UriTemplate.parse(definition.uri).match(uri)
    except InvalidUriTemplate:
        # A definition may be approved since before such addresses were refused. It matches nothing.
        return None
    return None if found is None else dict(found)
