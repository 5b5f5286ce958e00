"""Servers behind a gateway in this process. What they can reach is in tests/security/test_mcp_servers_behind.py."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from fakes import curious_mcp_server
from fakes.gateway_harness import open_harness
from fakes.raw_http import ask, make_token, operator
from palyra.errors import PalyraError
from palyra.executors.mcp_upstream.executor import UnknownServer
from palyra.server.http.app import create_app


def settings(tmp_path: Path, **more: Any) -> dict[str, Any]:
    home = tmp_path / "curious"
    home.mkdir()
    shutil.copy(curious_mcp_server.__file__, home / "server.py")
    server = {
        "command": "/usr/bin/python3",
        "args": ["server.py"],
        "workspace": str(home),
        "read_only": True,
        "isolation": "run",
        "allow_interpreters": True,
        **more,
    }
    return {"mcp": {"servers": {"curious": server}}, "tools": {"allowed": ["*"], "preapproved": ["*"]}}


async def test_looked_at_approved_called_and_ended(tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(tmp_path)) as harness:
        app = create_app(harness.gateway.service)
        owner = await operator(harness)
        agent = await make_token(harness, "agent:bot")
        assert (await ask(app, "GET", "/v1/mcp/servers", token=agent)).status == 403
        looked = await ask(app, "POST", "/v1/mcp/servers/curious/look", token=owner)
        [tool] = looked.data["tools"]
        assert (
            tool["state"] == "pending" and tool["definition"]["name"] == "tryOut" and "refers" in looked.data["refused"]
        )
        approval = {"tools": {"tryout": tool["digest"]}}
        approved = await ask(app, "POST", "/v1/mcp/servers/curious/approve", token=owner, body=approval)
        assert approved.data["tools"][0]["decided_by"] == "user:operator"
        listed = await ask(app, "GET", "/v1/mcp/servers", token=owner)
        assert listed.data["servers"][0]["command"] == ["/usr/bin/python3", "server.py"]
        # Two calls of one run at once share the instance that the first one starts.
        run = await harness.open_run()
        both = await asyncio.gather(
            *(harness.call("curious.tryout", {"what": "count"}, run_id=run, wait_ms=0) for _ in range(2))
        )
        texts = sorted(call.result["content"][0]["text"] for call in both)
        assert texts == ["1", "2"], both
        assert {line["layer"] for line in both[0].receipt} >= {"seccomp", "network_namespace"}
        failed = await harness.call("curious.tryout", {"what": "read", "where": "/nowhere"}, run_id=run)
        assert failed.error is not None and failed.error["code"] == "call.tool_failed"
        gone = await ask(app, "GET", "/v1/mcp/servers/nobody", token=owner)
        assert gone.code == "mcp.unknown_server"


async def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    async with open_harness(
        tmp_path, settings(tmp_path, args=["-c", "import sys; sys.exit('no such thing')"])
    ) as harness:
        with pytest.raises(PalyraError, match="no such thing"):
            await harness.gateway.mcp.servers.look("curious", actor="x")
        with pytest.raises(UnknownServer):
            await harness.gateway.mcp.servers.look("other", actor="x")


async def test_what_was_approved_is_there_after_a_restart(tmp_path: Path) -> None:
    described = settings(tmp_path)
    async with open_harness(tmp_path, described) as harness:
        servers = harness.gateway.mcp.servers
        listing = await servers.look("curious", actor="x")
        await servers.approve("curious", {"tryout": listing.definitions[0].digest}, by="user:me", actor="x")
        assert "curious.tryout" in harness.gateway.catalog
    async with open_harness(tmp_path, described) as harness:
        assert "curious.tryout" in harness.gateway.catalog
    async with open_harness(tmp_path, {}) as harness:
        assert "curious.tryout" not in harness.gateway.catalog
