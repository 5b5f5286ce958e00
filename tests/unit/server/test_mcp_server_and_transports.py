"""The transports of MCP. What clients see of it is in tests/e2e/test_mcp_clients.py."""

import asyncio
from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from fakes.raw_http import ask, make_token, operator
from palyra.identity.api_tokens import Unauthenticated
from palyra.server.http.app import create_app
from palyra.server.mcp.transports import CONNECTION, approvals_page, named_principal, session_of, token_of


class Request:
    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.scope: dict[str, str] = {}


def test_a_request_names_its_token_principal_and_session() -> None:
    request = Request(authorization="Bearer plr_x", palyra_principal="agent:a", mcp_session_id="s")
    assert (token_of(request), named_principal(request), session_of(request, "T")) == ("plr_x", "agent:a", "s")
    request.scope[CONNECTION] = "stdio-1"
    assert session_of(request, "T") == "stdio-1"
    assert session_of(Request(), "T") == "T" and session_of(None, "T") == "T"
    assert approvals_page(Request(host="localhost:1")) == "http://localhost:1/approvals" and approvals_page(None) == ""
    for bad in (None, Request(), Request(authorization="Basic x"), Request(authorization="Bearer ")):
        with pytest.raises(Unauthenticated):
            token_of(bad)


async def test_it_may_be_switched_off(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"mcp": {"enabled": False}}) as harness:
        app = create_app(harness.gateway.service)
        refused = await ask(app, "POST", "/mcp", token=await operator(harness))
        assert (refused.status, refused.code) == (503, "mcp.disabled")
        assert not (tmp_path / "state" / "mcp.used").exists()


async def test_lines_need_their_content_type_and_a_token(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        agent = await make_token(harness, "agent:bot")
        assert (await ask(app, "POST", "/mcp/stdio", token=agent)).code == "http.wrong_shape"
        nobody = await ask(app, "POST", "/mcp/stdio", headers=[(b"content-type", b"application/x-ndjson")])
        assert nobody.status == 401


async def test_a_transport_without_clients_says_so(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        transport = harness.gateway.mcp.transport()
        async with asyncio.timeout(60):
            await transport.wait_until_idle(0.01)
        assert transport.connections == 0
        assert (tmp_path / "state" / "mcp.used").exists()
