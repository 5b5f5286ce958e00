"""The connected devices, in memory only.

A device has one current connection. A second one takes its place at once, so that a device with a new certificate is
never offline in between. The first then gets a goodbye. Times that measure silence are monotonic seconds.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from palyra.errors import Denied
from palyra.identity.device import DeviceId

# Why a connection ended, for the journal and the goodbye.
REPLACED: Final = "nodes.replaced"
SILENT: Final = "nodes.silent"
CLOSED: Final = "nodes.closed"
LEFT: Final = "nodes.left"
STOPPING: Final = "daemon.stopping"

# A connection that lasted this long was not one of two that replace each other.
TAKEOVER_MS: Final = 600_000
# After this many takeovers two parties use one certificate, and the journal says so.
CONTESTED: Final = 3


class StaleConnection(Denied):
    code = "nodes.stale_connection"
    hint = "a connection with the device's newer certificate is there already"


class Connected(msgspec.Struct, kw_only=True, eq=False):
    """One stream of one device. ``received_at`` moves with every message."""

    device_id: DeviceId
    fingerprint: str
    generation: int
    since_ms: int
    received_at: float
    # How many requests the device works on, by its newest heartbeat.
    running: int = 0
    # How many connections with this certificate replaced each other in quick succession. One device does that once,
    # when its network broke; two that share a certificate go on.
    takeovers: int = 0


class NodeRegistry:
    def __init__(self) -> None:
        self._by_device: dict[DeviceId, Connected] = {}

    def attach(self, connected: Connected) -> Connected | None:
        """Make this the current connection, and return the one it replaces. The device stays online meanwhile."""
        before = self._by_device.get(connected.device_id)
        if before is not None and connected.generation < before.generation:
            raise StaleConnection("a connection with a newer certificate is there", device=connected.device_id)
        self._by_device[connected.device_id] = connected
        if before is not None and before.fingerprint == connected.fingerprint:
            soon = connected.since_ms - before.since_ms < TAKEOVER_MS
            connected.takeovers = before.takeovers + 1 if soon else 1
        return before

    def detach(self, connected: Connected) -> bool:
        """Remove the connection. Return whether the device is now offline: not if another one replaced it."""
        if self._by_device.get(connected.device_id) is not connected:
            return False
        del self._by_device[connected.device_id]
        return True

    def note_message(self, connected: Connected, now: float) -> None:
        connected.received_at = now

    def heartbeat(self, connected: Connected, running: int, now: float) -> None:
        connected.received_at = now
        connected.running = running

    def silent(self, now: float, timeout: float) -> list[Connected]:
        return [one for one in self._by_device.values() if now - one.received_at > timeout]

    def get(self, device_id: str) -> Connected | None:
        return self._by_device.get(DeviceId(device_id))

    def online(self) -> Sequence[DeviceId]:
        return tuple(self._by_device)

    def __len__(self) -> int:
        return len(self._by_device)
