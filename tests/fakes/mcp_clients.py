"""The official client of the Model Context Protocol, over both transports, against a real daemon."""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from fakes import curious_mcp_server
from fakes.daemon import Daemon, Place

# The newest revision, and the last one with a handshake.
MODES = ("auto", "legacy")
TRANSPORTS = ("stdio", "http")


@asynccontextmanager
async def over_stdio(
    place: Place, *arguments: str, token: str | None = None, mode: str = "auto", **options: Any
) -> AsyncIterator[Client]:
    environment = {**place.environment, **({"PALYRA_TOKEN": token} if token else {})}
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "palyra.cli.main", "mcp", *arguments], env=environment
    )
    async with Client(stdio_client(program), mode=mode, **options) as client:
        yield client


@asynccontextmanager
async def over_http(daemon: Daemon, token: str, *, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{daemon.url}/mcp", http_client=http), mode=mode, **options) as client,
    ):
        yield client


@asynccontextmanager
async def connected(
    transport: str, place: Place, daemon: Daemon, token: str, *, mode: str = "auto", **options: Any
) -> AsyncIterator[Client]:
    if transport == "stdio":
        async with over_stdio(place, token=token, mode=mode, **options) as client:
            yield client
    else:
        async with over_http(daemon, token, mode=mode, **options) as client:
            yield client


def words(result: Any) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def meta(result: Any, name: str) -> Any:
    return (result.meta or {}).get(f"dev.palyra/{name}")


def curious_server(home: Path, **more: Any) -> dict[str, Any]:
    """The settings of a server that tries what it is told to."""
    home.mkdir(exist_ok=True)
    shutil.copy(curious_mcp_server.__file__, home / "server.py")
    program = {"command": "/usr/bin/python3", "args": [str(home / "server.py")], "tool_roots": [str(home)]}
    return {**program, "allow_interpreters": True, **more}
