"""A gateway with a browser daemon made of dictionaries, and agents that use it through the whole pipeline."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.house import House, open_house
from fakes.memory_browser import MemoryBrowser, put_into
from palyra.ids import RunId
from palyra.pipeline.domain.call import CallRecord, CallState

SETTINGS: dict[str, Any] = {
    "egress": {"allowed_hosts": ["shop.test", "*.shop.test", "other.test"]},
    "browser": {"bindings": [{"secret_ref": "global/shop", "origins": ["https://shop.test"]}]},
}


@asynccontextmanager
async def browsing(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[House, MemoryBrowser]]:
    async with open_house(tmp_path, {**SETTINGS, **settings}) as house:
        browser = MemoryBrowser()
        put_into(house.gateway, browser)
        yield house, browser


class Agent:
    """One principal in one run."""

    def __init__(self, house: House, run: RunId, principal: str = "agent:bot") -> None:
        self.house = house
        self.run = run
        self.principal = principal
        self.session = ""

    async def call(self, tool: str, *, approve: bool = False, **arguments: Any) -> CallRecord:
        if self.session and tool != "browser.open":
            arguments = {"session": self.session, **arguments}
        record = await self.house.call(tool, arguments, principal=self.principal, run_id=self.run)
        if approve and record.state is CallState.NEEDS_APPROVAL:
            await self.house.approve(record.approval_id)
            record = await self.house.call(tool, arguments, principal=self.principal, run_id=self.run)
        return record

    async def done(self, tool: str, **arguments: Any) -> Any:
        record = await self.call(tool, **arguments)
        assert record.state is CallState.SUCCEEDED, record.error
        return record.result


async def opened(house: House, *, principal: str = "agent:bot", **arguments: Any) -> Agent:
    agent = Agent(house, await house.open_run(principal), principal)
    result = await agent.done("browser.open", approve=True, **({"hosts": ["shop.test"]} | arguments))
    agent.session = result["session"]
    return agent
