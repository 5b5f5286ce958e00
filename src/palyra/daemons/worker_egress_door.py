"""The door of a sandbox on a worker: its sockets go to the worker's egress proxy, and the account comes back."""

import socket
from typing import Protocol

import msgspec

from palyra.sandbox.namespace_sockets import OpenedSockets
from palyra.sandbox.network_door import DoorUsage
from palyra.sandbox.profile import EgressEnforcementMode, SandboxProfile
from palyra.workers.egress.door_messages import Granted, Kind, Usage
from palyra.workers.egress.lease_book import LeaseRef


class Proxy(Protocol):
    """The worker's connection to its proxy: `DoorClient`."""

    async def granted(self, ref: LeaseRef) -> Granted: ...

    async def open(self, ref: LeaseRef, sockets: list[tuple[Kind, socket.socket]]) -> None: ...

    async def close_door(self, ref: LeaseRef) -> Usage: ...


class LeasedDoor:
    """A ``NetworkDoor`` for one lease: what its program may reach the daemon told the proxy, not the worker."""

    def __init__(self, proxy: Proxy, ref: LeaseRef) -> None:
        self._proxy = proxy
        self._ref = ref

    async def opened(self, profile: SandboxProfile, sockets: OpenedSockets) -> "LeasedDoor":
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


async def leased_door(proxy: Proxy, ref: LeaseRef, profile: SandboxProfile) -> tuple[SandboxProfile, LeasedDoor | None]:
    """The profile with the hosts of the lease's grant, and the door that goes with it; none where it has no host."""
    if profile.egress is not EgressEnforcementMode.STRICT:
        return profile, None
    granted = await proxy.granted(ref)
    fitted = msgspec.structs.replace(profile, allowed_egress_hosts=granted.hosts)
    return fitted, LeasedDoor(proxy, ref) if granted.hosts else None
