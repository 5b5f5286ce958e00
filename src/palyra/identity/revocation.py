"""Whether a device is let in: the table of its standing, and the order in which a certificate is refused."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from palyra.errors import Denied
from palyra.identity.errors import CertificateExpired, CertificateSuperseded, DeviceLocked, DeviceRevoked


class DeviceState(StrEnum):
    ACTIVE = "active"
    LOCKED = "locked"
    """A stale generation was presented: its key may have been copied."""
    REVOKED = "revoked"
    """An operator ended it. It does not come back; the machine is paired anew, under another id."""


class DeviceEvent(StrEnum):
    LOCK = "lock"
    REVOKE = "revoke"


# Pairs that are not listed change nothing: what is ended stays ended, by its first reason.
TRANSITIONS: Final[Mapping[tuple[DeviceState, DeviceEvent], DeviceState]] = MappingProxyType(
    {
        (DeviceState.ACTIVE, DeviceEvent.LOCK): DeviceState.LOCKED,
        (DeviceState.ACTIVE, DeviceEvent.REVOKE): DeviceState.REVOKED,
        (DeviceState.LOCKED, DeviceEvent.REVOKE): DeviceState.REVOKED,
    }
)


def after(state: DeviceState, event: DeviceEvent) -> DeviceState | None:
    """The next state, or None where the event changes nothing."""
    return TRANSITIONS.get((state, event))


def refusal_of_device(state: DeviceState, device_id: str) -> Denied | None:
    if state is DeviceState.REVOKED:
        return DeviceRevoked(f"the device {device_id} is revoked", device_id=device_id)
    if state is DeviceState.LOCKED:
        return DeviceLocked(f"the device {device_id} is locked", device_id=device_id)
    return None


def refusal_of_certificate(
    *, state: DeviceState, device_id: str, generation: int, used_generation: int, not_after_ms: int, now_ms: int
) -> Denied | None:
    """Why a known certificate is not accepted now, or None. What an operator decided is told before what time did."""
    refused = refusal_of_device(state, device_id)
    if refused is not None:
        return refused
    if now_ms >= not_after_ms:
        return CertificateExpired(f"the certificate of {device_id} has ended", device_id=device_id)
    if generation < used_generation:
        return CertificateSuperseded(
            f"{device_id} has used generation {used_generation}, this certificate is of generation {generation}",
            device_id=device_id,
            generation=generation,
        )
    return None
