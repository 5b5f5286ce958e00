"""A gateway with a browser daemon made of dictionaries, and agents that use it through the whole pipeline."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.memory_browser import MemoryBrowser, put_into
from palyra.ids import RunId
from palyra.pipeline.domain.call import CallRecord, CallState

SETTINGS: dict[str, Any] = {
    "egress": {"allowed_hosts": ["shop.test", "*.shop.test", "other.test"]},
    "browser": {"bindings": [{"secret_ref": "global/shop", "origins": ["https://shop.test"]}]},
}


@asynccontextmanager
async def browsing(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[GatewayHarness, MemoryBrowser]]:
    async with open_harness(tmp_path, {**SETTINGS, **settings}) as harness:
        browser = MemoryBrowser()
        put_into(harness.gateway, browser)
        yield harness, browser


class Agent:
    """One principal in one run."""

    def __init__(self, harness: GatewayHarness, run: RunId, principal: str = "agent:bot") -> None:
        self.harness = harness
        self.run = run
        self.principal = principal
        self.session = ""

    async def call(self, tool: str, *, approve: bool = False, **arguments: Any) -> CallRecord:
        if self.session and tool != "browser.open":
            arguments = {"session": self.session, **arguments}
        record = await self.harness.call(tool, arguments, principal=self.principal, run_id=self.run)
        if approve and record.state is CallState.NEEDS_APPROVAL:
            await self.harness.approve(record.approval_id)
            record = await self.harness.call(tool, arguments, principal=self.principal, run_id=self.run)
        return record

    async def done(self, tool: str, **arguments: Any) -> Any:
        record = await self.call(tool, **arguments)
        assert record.state is CallState.SUCCEEDED, record.error
        return record.result


async def opened(harness: GatewayHarness, *, principal: str = "agent:bot", **arguments: Any) -> Agent:
    agent = Agent(harness, await harness.open_run(principal), principal)
    result = await agent.done("browser.open", approve=True, **({"hosts": ["shop.test"]} | arguments))
    agent.session = result["session"]
    return agent
