"""Tier B has the host's network: it closes TCP where the kernel can, and holds strict egress nowhere.

Where policy demands strict egress a call in Tier B is refused before its program starts. The control is the same
program where only the settings ask for it: what it sends arrives, and the receipt says that nothing held it.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.errors import PalyraError

pytestmark = pytest.mark.promise("P-obligations")

SETTINGS = {
    "tools": {"preapproved": ["process.*"]},
    "sandbox": {"allow_interpreters": True, "tier": "b", "egress": "strict"},
}
SEND = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(b'out', ('127.0.0.1', int(sys.argv[1])))"


@pytest.fixture
def outside() -> Iterator[socket.socket]:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        yield sock


def oblige(tmp_path: Path, *obligations: str) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    held = "\n".join(f"@obligation_{each}" for each in obligations)
    (folder / "own.cedar").write_text(
        f'@id("own.held")\n{held}\npermit (principal, action == Action::"tool.execute", resource);\n'
    )


def sending(outside: socket.socket) -> dict[str, Any]:
    return {"command": "/usr/bin/python3", "args": ["-I", "-c", SEND, str(outside.getsockname()[1])]}


async def test_without_a_demand_the_program_runs_and_the_receipt_says_what_did_not_hold(
    tmp_path: Path, outside: socket.socket
) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        record = await harness.call("process.run", sending(outside))
        assert record.result is not None and record.result["exit_code"] == 0
        (line,) = [line for line in record.receipt or [] if line["layer"] == "egress"]
        assert line["asked"] == "strict" and not line["held"]
        assert outside.recv(100) == b"out"


@pytest.mark.parametrize("tool", ["process.run", "process.start"])
async def test_what_policy_demands_and_tier_b_cannot_hold_refuses_the_call(
    tmp_path: Path, outside: socket.socket, tool: str
) -> None:
    oblige(tmp_path, 'egress("strict")')
    async with open_harness(tmp_path, SETTINGS) as harness:
        error = await refusal(harness, tool, sending(outside))
        assert error["code"] == "sandbox.unsupported_platform"
        assert "egress" in error["message"] and "tier c" in error["hint"]
        with pytest.raises(BlockingIOError):
            outside.recv(100)


async def test_in_tier_c_the_same_demand_is_met(tmp_path: Path, outside: socket.socket) -> None:
    oblige(tmp_path, 'egress("strict")', 'tier("c")')
    async with open_harness(tmp_path, SETTINGS) as harness:
        record = await harness.call("process.run", sending(outside))
        assert record.result is not None and record.result["tier"] == "c"
        (line,) = [line for line in record.receipt or [] if line["layer"] == "egress"]
        assert line["held"]
        with pytest.raises(BlockingIOError):
            outside.recv(100)


async def refusal(harness: GatewayHarness, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        record = await harness.call(tool, arguments)
    except PalyraError as error:
        return error.as_dict()
    assert record.error is not None
    return record.error
