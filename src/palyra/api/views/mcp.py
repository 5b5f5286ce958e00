"""What the routes about MCP servers answer."""

from typing import Any

import msgspec

from palyra.api.described import Sha256, Time


class ServerToolData(msgspec.Struct, frozen=True, kw_only=True):
    """``definition`` is what the server offers, ``approved`` what was reviewed, each where it is another or was asked
    for."""

    tool: str
    state: str
    digest: Sha256
    approved_digest: str
    title: str
    description: str
    changed_at: Time
    decided_by: str
    changed: list[str]
    definition: dict[str, Any] | None = None
    approved: dict[str, Any] | None = None


class ServerData(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    command: list[str]
    hosts: list[str]
    secrets: list[str]
    workspace: str
    read_only: bool
    allow_interpreters: bool
    tools: list[ServerToolData]
    refused: dict[str, str] | None = None


class ServerList(msgspec.Struct, frozen=True, kw_only=True):
    servers: list[ServerData]
