"""The section ``mcp`` of the settings."""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.limits import MAX_PRINCIPAL_CHARS
from palyra.mcp.behind.server_plan import ServerPlan

Name = Annotated[str, Meta(min_length=1, max_length=MAX_PRINCIPAL_CHARS)]


class McpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, Meta(description="Whether agents may connect over the Model Context Protocol.")] = True
    deciders: Annotated[
        dict[Name, Name],
        Meta(
            description="The person in front of each principal's client, who is asked there for approvals where policy"
            " lets them decide; a principal that is not named is never asked through its client."
        ),
    ] = {}
    servers: Annotated[
        dict[Name, ServerPlan],
        Meta(
            description="Other servers behind Palyra, by name: what is run in a Tier C sandbox, and what it is given."
        ),
    ] = {}
