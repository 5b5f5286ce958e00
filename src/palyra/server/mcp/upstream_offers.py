"""Prompts and resources of servers behind Palyra, to clients as what they are. Each is asked for by a call of a tool,
with everything that a call goes through."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

from palyra.executors.mcp_upstream.spec import DefinitionKind, ToolDefinition
from palyra.ids import ToolName
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.server.mcp.call_report import explained
from palyra.server.mcp.elicitation import how_to_go_on
from palyra.server.mcp.request_context import console_of
from palyra.server.mcp.service import BehindOffer, Desk, Visitor
from palyra.server.mcp.tools import to_client

_NOT_GIVEN: Final = -32001
_INVALID_PARAMS: Final = -32602
Context = ServerRequestContext[Any, Any]
# Makes a call of a tool on behalf of whoever asks.
Ask = Callable[[Visitor, Context, ToolName, dict[str, Any]], Awaitable[CallRecord]]


class BehindDoor:
    def __init__(self, desk: Desk, ask: Ask) -> None:
        self._desk = desk
        self._ask = ask

    def prompts(self, visitor: Visitor) -> list[types.Prompt]:
        return [_prompt(offer) for offer in self._desk.offers(visitor, DefinitionKind.PROMPT)]

    def prompt(self, visitor: Visitor, name: str) -> BehindOffer:
        for offer in self._desk.offers(visitor, DefinitionKind.PROMPT):
            if name == prompt_name(offer):
                return offer
        raise MCPError(_INVALID_PARAMS, f"there is no prompt {name[:128]!r}")

    async def get_prompt(self, visitor: Visitor, ctx: Context, name: str, arguments: Any) -> types.GetPromptResult:
        offer = self.prompt(visitor, name)
        result = await self._given(visitor, ctx, offer.tool, dict(arguments or {}))
        return types.GetPromptResult.model_validate(result["structured"])

    def resources(self, visitor: Visitor) -> list[types.Resource]:
        return [
            types.Resource(uri=offer.definition.uri, **_described(offer.definition))
            for offer in self._desk.offers(visitor, DefinitionKind.RESOURCE)
        ]

    def templates(self, visitor: Visitor) -> list[types.ResourceTemplate]:
        return [
            types.ResourceTemplate(uri_template=offer.definition.uri, **_described(offer.definition))
            for offer in self._desk.offers(visitor, DefinitionKind.TEMPLATE)
        ]

    async def read(self, visitor: Visitor, ctx: Context, uri: str) -> types.ReadResourceResult | None:
        """None where no server has such an address. Of two servers with one address, the first by name is asked."""
        for offer in self._desk.offers(visitor, DefinitionKind.RESOURCE, DefinitionKind.TEMPLATE):
            arguments = _matched(offer.definition, uri)
            if arguments is not None:
                result = await self._given(visitor, ctx, offer.tool, arguments)
                contents = [block["resource"] for block in result["content"]]
                return types.ReadResourceResult.model_validate({"contents": contents})
        return None

    async def _given(self, visitor: Visitor, ctx: Context, tool: ToolName, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the call brought. There is no other way to say that it did not run than an error of the protocol."""
        record = await self._ask(visitor, ctx, tool, arguments)
        if record.state is CallState.NEEDS_APPROVAL and record.approval_id is not None:
            approval = await self._desk.approval(visitor, record.approval_id)
            raise MCPError(_NOT_GIVEN, how_to_go_on(approval, console_of(ctx.request)))
        if record.error is not None or not isinstance(record.result, dict):
            raise MCPError(_NOT_GIVEN, explained(record), record.error)
        return record.result


def prompt_name(offer: BehindOffer) -> str:
    """As a tool of that name would be called."""
    return to_client(f"{offer.server}.{offer.definition.own_name}")


def _prompt(offer: BehindOffer) -> types.Prompt:
    schema = offer.definition.input_schema
    arguments = [
        types.PromptArgument(name=name, description=part.get("description"), required=name in schema["required"])
        for name, part in schema["properties"].items()
    ]
    told = offer.definition
    return types.Prompt(
        name=prompt_name(offer), title=told.title or None, description=told.description or None, arguments=arguments
    )


def _described(told: ToolDefinition) -> dict[str, Any]:
    known = {"title": told.title, "description": told.description, "mime_type": told.media_type}
    return {"name": told.name, **{name: value for name, value in known.items() if value}}


def _matched(told: ToolDefinition, uri: str) -> dict[str, Any] | None:
    if told.kind is DefinitionKind.RESOURCE:
        return {} if uri == told.uri else None
    try:
        found = UriTemplate.parse(told.uri).match(uri)
    except InvalidUriTemplate:
        # Reviewed before such addresses were refused: it is nobody's, and the others are still looked at.
        return None
    return None if found is None else dict(found)
