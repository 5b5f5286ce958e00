"""A gateway with a bound host: the proxy port of a call within reach of a test, and the server behind it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.executors.network.service import SandboxListener
from palyra.limits import MIB
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.pipeline.domain.spec import ToolTier
from palyra.sandbox.domain.profile import SandboxProfile, SandboxTier
from palyra.secret import Secret
from palyra.vault.reference import SecretRef

TOKEN = "tok-0123456789abcdef"
OWN = "principal:agent:bot/t"
PLACEHOLDER = "{{vault:principal:agent:bot/t}}"


def settings(port: int, **egress: Any) -> dict[str, Any]:
    hosts = [f"api.test:{port}", f"other.test:{port}"]
    return {
        "egress": {
            "allowed_hosts": hosts,
            "private_targets": hosts,
            "static_hosts": {"api.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]},
            "bindings": [binding(port)],
            **egress,
        },
        "sandbox": {"allowed_hosts": hosts},
        "tools": {"preapproved": ["http.fetch"]},
    }


def binding(port: int, **more: Any) -> dict[str, Any]:
    bound = {"header_name": "Authorization", "secret_ref": OWN, "prefix": "Bearer ", "hosts": [f"api.test:{port}"]}
    return bound | more


async def put(harness: GatewayHarness, ref: str = OWN, value: str = TOKEN) -> None:
    await harness.gateway.vault.put(SecretRef.parse(ref), Secret(value), actor="user:operator")


class Sandboxed:
    """A call's listener with its proxy port where a test can reach it, and a server that says what it is told to."""

    def __init__(
        self, harness: GatewayHarness, listener: SandboxListener, plan: ExecutionPlan, proxy: Any, port: int
    ) -> None:
        self.harness, self.listener, self.plan, self.proxy, self.port = harness, listener, plan, proxy, port
        self.received: list[bytes] = []
        self.replies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.received.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self.replies.pop(0) if self.replies else b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
                if b"until-close" in self.received[-1]:
                    break
        writer.close()

    async def say(self, *pieces: bytes) -> bytes:
        """Everything that comes back through the proxy port for these bytes."""
        reader, writer = await asyncio.open_connection(*self.proxy)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write_eof()
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := await asyncio.wait_for(reader.read(65536), 20):
                received += data
        writer.close()
        return received

    async def get(self, path: str = "/", headers: str = "", method: str = "GET") -> bytes:
        host = f"api.test:{self.port}"
        return await self.say(f"{method} http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n".encode())

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return self.harness.events(call=self.plan.call_id)


@asynccontextmanager
async def sandboxed(tmp_path: Path, **egress: Any) -> AsyncIterator[Sandboxed]:
    it: Sandboxed
    server = await asyncio.start_server(lambda reader, writer: it.serve(reader, writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, open_harness(tmp_path, settings(port, **egress)) as harness:
        await put(harness)
        plan = plan_of(harness)
        _, listener = harness.gateway.egress.prepare_listener(plan, profile_of(harness, f"api.test:{port}"))
        assert listener is not None
        listening = socket.create_server(("127.0.0.1", 0))
        it = Sandboxed(harness, listener, plan, listening.getsockname(), port)
        sockets: Any = [SimpleNamespace(plan=SimpleNamespace(kind=SimpleNamespace(value="proxy")), socket=listening)]
        await listener.serve(sockets)
        try:
            yield it
        finally:
            await listener.close()


def plan_of(harness: GatewayHarness, **more: Any) -> ExecutionPlan:
    given: dict[str, Any] = {"call_id": "c1", "run_id": "r1", "tool": "process.run", "arguments": {}}
    given |= {"granted": {BudgetKind.EGRESS_BYTES: MIB}} | more
    return ExecutionPlan(
        workspace=str(harness.workspace),
        timeout_ms=1000,
        max_output_bytes=1000,
        tier=ToolTier.C,
        principal="agent:bot",
        channel="cli",
        **given,
    )


def profile_of(harness: GatewayHarness, *hosts: str) -> SandboxProfile:
    return SandboxProfile(workspace_root=str(harness.workspace), tier=SandboxTier.C, allowed_egress_hosts=hosts)
