"""Devices by name: what kind, which one, and the SPIFFE id that its certificate carries."""

import re
from enum import StrEnum
from typing import Final, Self

import msgspec

from palyra.errors import InvalidInput
from palyra.ids import InvalidId, Ulid

_SCHEME: Final = "spiffe://"
_TRUST_DOMAIN: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,254}")
_LONGEST: Final = 512


class InvalidDevice(InvalidInput):
    code = "identity.malformed_name"
    hint = "a device is named spiffe://<trust domain>/<node|worker|egress>/<device id>"


class DeviceKind(StrEnum):
    NODE = "node"
    WORKER = "worker"
    EGRESS = "egress"


class DeviceId(Ulid):
    __slots__ = ()
    noun = "device id"


class SpiffeId(msgspec.Struct, frozen=True, order=True):
    """``spiffe://<trust domain>/<kind>/<device id>``, with one spelling only."""

    trust_domain: str
    kind: DeviceKind
    device_id: DeviceId

    @classmethod
    def parse(cls, raw: str) -> Self:
        parts = raw.removeprefix(_SCHEME).split("/") if len(raw) <= _LONGEST and raw.startswith(_SCHEME) else ()
        if len(parts) != 3 or not _TRUST_DOMAIN.fullmatch(parts[0]) or parts[1] not in set(DeviceKind):
            raise InvalidDevice(f"{raw[:_LONGEST]!r} is not the name of a device")
        try:
            return cls(parts[0], DeviceKind(parts[1]), DeviceId.parse(parts[2]))
        except InvalidId as error:
            raise InvalidDevice(f"{raw!r} does not name a device: {error.message}") from error

    def __str__(self) -> str:
        return f"{_SCHEME}{self.trust_domain}/{self.kind.value}/{self.device_id}"


def new_trust_domain() -> str:
    """Made once for each state directory, so that devices of two installations cannot be taken for one another."""
    return f"palyra-{Ulid.new().lower()}"


def actor_of(kind: DeviceKind, device_id: str) -> str:
    """How the journal names a device that acts for itself."""
    return f"{kind.value}/{device_id}"
