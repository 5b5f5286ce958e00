"""Programs in the background and the run's budget of bytes: charged for the most while they run, for what they moved
when they end, and at no time for less."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.pipeline.domain.budget import BudgetKind

pytestmark = pytest.mark.promise("P-budget-charged")

MOST = 400_000
BODY = 100_000
CAP = 1_000_000
FETCH = """
import socket, sys, time
with socket.create_connection(("here.test", int(sys.argv[1])), 30) as c:
    c.sendall(b"\\0")
    got = 0
    while got < int(sys.argv[2]):
        data = c.recv(65536)
        if not data:
            break
        got += len(data)
print(got, flush=True)
if sys.argv[3] == "stay":
    time.sleep(300)
"""


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[tuple[GatewayHarness, int, str]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(bytes(BODY))
        try:
            await writer.drain()
            await reader.read()
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hosts = [f"here.test:{port}"]
    settings = {
        "egress": {
            "allowed_hosts": hosts,
            "private_targets": hosts,
            "static_hosts": {"here.test": ["127.0.0.1"]},
            "max_call_bytes": MOST,
        },
        "sandbox": {"allowed_hosts": hosts, "allow_interpreters": True},
        "tools": {"preapproved": ["process.*"]},
    }
    async with server, open_harness(tmp_path, settings) as harness:
        yield harness, port, await harness.open_run(egress_bytes=CAP)


async def start(
    harness: GatewayHarness, run: str, port: int, *, stay: bool = True, tool: str = "process.start"
) -> dict[str, Any]:
    words = ["-I", "-c", FETCH, str(port), str(BODY), "stay" if stay else "leave"]
    arguments: dict[str, Any] = {"command": "/usr/bin/python3", "args": words}
    if tool == "process.run":
        arguments["background"] = True
    record = await harness.call(tool, arguments, run_id=run)
    assert record.result is not None, record.error
    return record.result


async def until_it_says(harness: GatewayHarness, run: str, handle: str, text: str) -> None:
    async def says_it() -> bool:
        record = await harness.call("process.logs", {"handle": handle}, run_id=run)
        assert record.result is not None, record.error
        return bool(record.result["content"].strip() == text)

    await eventually(says_it)


def bytes_of(harness: GatewayHarness, run: str) -> tuple[int, int]:
    account = harness.run(run).budget[BudgetKind.EGRESS_BYTES]
    return account.reserved, account.used


@pytest.mark.parametrize("tool", ["process.start", "process.run"])
async def test_the_most_is_charged_while_it_runs_and_what_it_moved_when_it_ends(tmp_path: Path, tool: str) -> None:
    async with served(tmp_path) as (harness, port, run):
        handle = (await start(harness, run, port, tool=tool))["handle"]
        await until_it_says(harness, run, handle, str(BODY))
        assert bytes_of(harness, run) == (0, MOST)
        await harness.call("process.stop", {"handle": handle}, run_id=run)
        _, used = bytes_of(harness, run)
        assert BODY < used < BODY + 1000
        (returned,) = [payload for kind, payload in harness.events(run=run) if kind == "run.budget_returned"]
        assert returned == {"budget": "egress_bytes", "amount": MOST - used}
        closed = [payload for kind, payload in harness.events(run=run) if kind == "egress.closed"]
        assert sum(payload["up"] + payload["down"] for payload in closed) == used


async def test_programs_at_once_cannot_move_more_than_the_run_has(tmp_path: Path) -> None:
    async with served(tmp_path) as (harness, port, run):
        handles = [(await start(harness, run, port))["handle"] for _ in range(2)]
        # Of the third's share only a part is left, and it is held to that.
        third = (await start(harness, run, port))["handle"]
        assert bytes_of(harness, run) == (0, CAP)
        refused = await harness.call("process.start", {"command": "/usr/bin/true"}, run_id=run)
        assert refused.error is not None and refused.error["code"] == "budget.exhausted"
        for handle in (*handles, third):
            await until_it_says(harness, run, handle, str(BODY))
            await harness.call("process.stop", {"handle": handle}, run_id=run)
        assert 3 * BODY < bytes_of(harness, run)[1] < 3 * (BODY + 1000)
        # What they did not use is there for the next.
        assert "handle" in await start(harness, run, port)


async def test_one_that_ends_with_its_call_and_one_that_ends_with_the_daemon(tmp_path: Path) -> None:
    async with served(tmp_path) as (harness, port, run):
        handle = (await start(harness, run, port, stay=False))["handle"]
        await until_it_says(harness, run, handle, str(BODY))
        await eventually(lambda: bytes_of(harness, run)[1] < MOST)
        assert BODY < bytes_of(harness, run)[1] < BODY + 1000
        await start(harness, run, port)
        await harness.gateway.processes.close()
        assert BODY < bytes_of(harness, run)[1] < 2 * (BODY + 1000)
