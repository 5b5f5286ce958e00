"""The life of one call's door: opened while the sandbox waits, served while its program runs, closed however it ends.

Who serves it is not known here. The daemon gives an implementation of ``NetworkDoor``, which gets the sockets that
listen in the sandbox's network; this module sees to it that none of them outlives the call.
"""

import asyncio
from typing import Protocol

from palyra.sandbox import limits
from palyra.sandbox.domain.network import DoorUsage, NetworkSeen, door_plan, used_line
from palyra.sandbox.domain.profile import SandboxProfile
from palyra.sandbox.domain.receipt import Layer, Receipt
from palyra.sandbox.network.namespace_sockets import NamespaceSockets, OpenedSockets, look_at_network
from palyra.sandbox.verify.readback import Waiting


class DoorHandle(Protocol):
    async def close(self) -> DoorUsage:
        """Stops serving, cuts what is still connected, closes every accepted socket, and says what went through."""


class NetworkDoor(Protocol):
    """Made for one call: it knows whose call it is and what that call may reach."""

    async def opened(self, sockets: OpenedSockets) -> DoorHandle:
        """Serves the sockets from now on. Once this returns the program starts; if it raises, it never does."""


class Doorway:
    """The door of one call. Closing is always right: before it was opened, after it failed to, and twice."""

    def __init__(self, door: NetworkDoor | None, namespace_sockets: NamespaceSockets) -> None:
        self._door = door
        self._namespace_sockets = namespace_sockets
        self._sockets: OpenedSockets | None = None
        self._serving: asyncio.Task[DoorHandle] | None = None

    @property
    def served(self) -> bool:
        return self._door is not None

    @property
    def never_opened(self) -> bool:
        """Whether there is nothing to close."""
        return self._sockets is None and self._serving is None

    def begin(self, profile: SandboxProfile) -> None:
        """Has the helper started while the sandbox is prepared, if there is none yet: it takes as long as that."""
        if self.served and door_plan(profile) is not None:
            self._namespace_sockets.start_soon()

    async def open(self, profile: SandboxProfile, waiting: Waiting) -> None:
        """Where the profile allows hosts: opens its sockets in the waiting sandbox and has them served."""
        plan = door_plan(profile)
        if plan is not None and self.served:
            with waiting.network() as (network, owner):
                opened = await self._namespace_sockets.open(plan, network, owner)
            await self.serve(opened)

    async def serve(self, sockets: OpenedSockets | None) -> None:
        """Has sockets served that listen in the sandbox already. They are closed with the door from now on."""
        self._sockets = sockets
        if self._door is not None and sockets is not None:
            # Not cancelled half way, whoever waits for it: what has been opened is then there to be closed.
            self._serving = asyncio.create_task(self._door.opened(sockets), name="a door is opened")
            await asyncio.shield(self._serving)

    def look(self, waiting: Waiting) -> NetworkSeen | None:
        """What is there, once the sandbox is complete; for a thread. None where there is no door."""
        return None if self._sockets is None else look_at_network(self._sockets, waiting)

    async def close(self, receipt: Receipt) -> tuple[Receipt, DoorUsage | None]:
        """The receipt with what went through, and that as a value. To be shielded by who may be cancelled."""
        sockets, self._sockets = self._sockets, None
        serving, self._serving = self._serving, None
        usage: DoorUsage | None = None
        try:
            if serving is not None:
                async with asyncio.timeout(limits.DOOR_CLOSE_SECONDS):
                    handle = await serving
                    usage = await handle.close()
        except Exception:
            # Whatever it was: its sockets are closed here, and the receipt says that it did not end as it should.
            usage = None
        finally:
            if sockets is not None:
                sockets.close()
        line = receipt.line(Layer.EGRESS)
        if serving is None or line is None:
            return receipt, usage
        return receipt.with_lines([used_line(line, usage)]), usage
