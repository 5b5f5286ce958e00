"""The egress of an instance, which serves one call after another.

A connection belongs to exactly one call: that call's decision lets it out, its budget pays, and its record names it. So
an instance with hosts takes one call at a time, and nothing goes out between two calls.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from palyra.egress.domain.grant import EgressGrant
from palyra.egress.protocols.dns import SyntheticNames
from palyra.egress.proxy.server import ListeningSocket
from palyra.executors.network.service import NetworkService, SandboxListener
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.pipeline.execute import shield_until_done
from palyra.sandbox.domain.network import NetworkUsage
from palyra.sandbox.network.call_network import OpenedSockets


class InstanceListener(SandboxListener):
    """A listener with the grant of the call in progress, under the id of the call that started the process."""

    def __init__(self, network: NetworkService, plan: ExecutionPlan, hosts: tuple[str, ...]) -> None:
        super().__init__(network, plan, network.grant_for(plan, hosts))
        self._hosts = hosts
        self._turn = asyncio.Lock()

    @property
    def is_taken(self) -> bool:
        return self._turn.locked()

    @asynccontextmanager
    async def turn(self, plan: ExecutionPlan) -> AsyncIterator[None]:
        """Wait until no other call uses the instance, and let it out under this call until this call ends."""
        async with self._turn:
            self._begin(plan)
            try:
                yield
            finally:
                cut = self._end(plan)
                await shield_until_done(self._flush(cut))

    async def serve(self, sockets: OpenedSockets) -> "InstanceListener":
        listening = [ListeningSocket(kind=each.plan.kind.value, socket=each.socket) for each in sockets]
        if self._authority is not None:
            self._network.termination.adopt(self._grant, self._authority)
        names = SyntheticNames(self._grant.exact_names())
        try:
            self._listener = self._network.proxy.open_listener(self._grant, listening, names)
        except BaseException:
            self._network.leave(self._grant)
            raise
        return self

    async def close(self) -> NetworkUsage:
        assert self._listener is not None
        usage = self._listener.close()
        await self._listener.wait_until_empty()
        await self._network.observer.flush()
        self._network.leave(self._grant)
        return NetworkUsage(
            connections=usage.connections,
            bytes_up=usage.bytes_up,
            bytes_down=usage.bytes_down,
            credential_uses=usage.credential_uses,
            refused=usage.refused,
            violations=usage.violations,
            refusals=(),
        )

    def _begin(self, plan: ExecutionPlan) -> None:
        grant: EgressGrant = self._network.grant_for(plan, self._hosts)
        self._grant = msgspec.structs.replace(grant, grant_id=self._grant.grant_id)
        self._network.enter(plan, self._grant)
        plan.usage.note(BudgetKind.EGRESS_BYTES, self.most_bytes)
        if self._listener is not None:
            self._listener.hand_over(self._grant)

    def _end(self, plan: ExecutionPlan) -> "list[asyncio.Task[None]]":
        """Let nothing out before anything else runs. The grant stays, so that a refusal names the ended call."""
        self._network.grants.leave(self._grant.grant_id)
        cut = [] if self._listener is None else self._listener.end_call()
        plan.usage.note(BudgetKind.EGRESS_BYTES, 0 if self._listener is None else self._listener.budget.spent)
        return cut

    async def _flush(self, cut: "list[asyncio.Task[None]]") -> None:
        """Write the events of the call before its end is recorded, and count the next call's from zero."""
        if cut:
            await asyncio.wait(cut)
        await self._network.observer.flush()
        self._network.observer.forget(self._grant.grant_id)
