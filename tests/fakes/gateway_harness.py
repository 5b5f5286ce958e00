"""A whole gateway in the test's own process, with real parts and short ways to use them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway, running_gateway
from palyra.daemon.settings import Settings
from palyra.ids import Principal, RunId
from palyra.pipeline.domain.approval import Approval, ApprovalEvent, Verdict
from palyra.pipeline.domain.budget import RunBudget
from palyra.pipeline.domain.call import CallRecord, CallRequest
from palyra.pipeline.store.approval_tables import decide
from palyra.pipeline.store.run_tables import Run, open_run, read_run


class GatewayHarness:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.workspace = Path(gateway.broker.config.workspaces.default)

    async def call(
        self, tool: str, arguments: str | dict[str, Any], *, principal: str = "agent:bot", **more: Any
    ) -> CallRecord:
        fields: dict[str, Any] = {"actor": "user:operator", "channel": "cli", **more}
        return await self.gateway.broker.call(
            CallRequest(tool=tool, arguments=arguments, principal=Principal.parse(principal), **fields)
        )

    async def approve(self, approval_id: str | None, by: str = "user:alice", **more: Any) -> Approval:
        return await self.decide(approval_id, ApprovalEvent.APPROVE, by, **more)

    async def decide(self, approval_id: str | None, event: ApprovalEvent, by: str, **more: Any) -> Approval:
        assert approval_id is not None
        verdict = Verdict(event=event, by=by, **more)
        decided = await self.gateway.store.transact(lambda tx: decide(tx, approval_id, verdict, actor=by))
        self.gateway.broker.approval_waiters.notify(approval_id)
        return decided

    async def open_run(self, principal: str = "agent:bot", **caps: int) -> RunId:
        run_id = RunId.new()
        await self.gateway.store.transact(
            lambda tx: open_run(tx, str(run_id), principal, "user:operator", RunBudget(**caps))
        )
        return run_id

    def run(self, run_id: str) -> Run:
        return read_run(self.gateway.store, RunId.parse(run_id), None)

    def events(self, **filters: str) -> list[tuple[str, dict[str, Any]]]:
        """Kind and payload of every journal entry that fits."""
        found = self.gateway.store.events_since(0, 100_000, **filters)
        return [(event.kind, msgspec.json.decode(event.payload)) for event in found]

    def kinds(self, **filters: str) -> list[str]:
        return [kind for kind, _ in self.events(**filters)]


@asynccontextmanager
async def open_harness(tmp_path: Path, settings: dict[str, Any] | None = None) -> AsyncIterator[GatewayHarness]:
    """``settings`` by section, as in the settings file. Policies are read from ``tmp_path/policies``."""
    tree = msgspec.convert(settings or {}, Settings)
    async with running_gateway(tree, StateDir.open(tmp_path / "state"), tmp_path / "policies") as gateway:
        yield GatewayHarness(gateway)
