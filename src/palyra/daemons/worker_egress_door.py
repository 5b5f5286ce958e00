"""The door of a sandbox on a worker: its sockets go to the worker's egress proxy, and the account comes back."""

import asyncio
import socket
from pathlib import Path
from typing import Protocol

from palyra.sandbox.namespace_sockets import OpenedSockets
from palyra.sandbox.network_door import DoorUsage
from palyra.workers.egress.door_client import DoorClient
from palyra.workers.egress.door_messages import Kind, Usage
from palyra.workers.egress.lease_book import LeaseRef
from palyra.workers.signed_statement import SignedStatement


class Proxy(Protocol):
    """The worker's connection to its proxy."""

    async def open(self, ref: LeaseRef, sockets: list[tuple[Kind, socket.socket]]) -> None: ...

    async def close_door(self, ref: LeaseRef) -> Usage: ...


class LeasedDoor:
    """A ``NetworkDoor`` for one lease: what its program may reach the daemon told the proxy, not the worker."""

    def __init__(self, proxy: Proxy, ref: LeaseRef) -> None:
        self._proxy = proxy
        self._ref = ref

    async def opened(self, sockets: OpenedSockets) -> "LeasedDoor":
        await self._proxy.open(self._ref, [(each.plan.kind.value, each.socket) for each in sockets])
        return self

    async def close(self) -> DoorUsage:
        usage = await self._proxy.close_door(self._ref)
        return DoorUsage(
            connections=usage.connections,
            bytes_up=usage.bytes_up,
            bytes_down=usage.bytes_down,
            refused=usage.refused,
            violations=usage.violations,
            refusals=usage.refusals,
        )


class ProxyOfWorker:
    """The worker's way out, at the socket of its proxy. Connected when first needed, and again after it was gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: DoorClient | None = None
        self._connecting = asyncio.Lock()

    async def binding(self, worker_id: str, nonce: str) -> tuple[str, SignedStatement]:
        return await (await self._connected()).bind(worker_id, nonce)

    async def hosts(self, lease_id: str, fence: int) -> tuple[str, ...]:
        """What the daemon granted the lease; raises where it granted nothing at all, not even no host."""
        return (await (await self._connected()).granted(LeaseRef(lease_id, fence))).hosts

    def door(self, lease_id: str, fence: int) -> LeasedDoor:
        return LeasedDoor(self, LeaseRef(lease_id, fence))

    async def open(self, ref: LeaseRef, sockets: list[tuple[Kind, socket.socket]]) -> None:
        await (await self._connected()).open(ref, sockets)

    async def close_door(self, ref: LeaseRef) -> Usage:
        return await (await self._connected()).close_door(ref)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    async def _connected(self) -> DoorClient:
        async with self._connecting:
            if self._client is None or self._client.ended.is_set():
                self._client = await DoorClient.connect(self._path)
            return self._client
