"""The grants of a guest, and the numbers it knows them by.

A handle is a base for the kind plus the place in the sorted list. A guest can count and guess handles; a guess that
hits nothing is answered with a status. Names of hosts, secrets and channels never enter the worker.
"""

from enum import StrEnum
from typing import Final

import msgspec

from palyra.errors import InvalidInput
from palyra.wasm.domain.limits import MAX_GRANTS_PER_KIND


class Capability(StrEnum):
    HTTP = "http"
    SECRET = "secret"  # noqa: S105 - the kind's name
    STORAGE = "storage"
    CHANNEL = "channel"


HANDLE_BASE: Final = {
    Capability.HTTP: 10_000,
    Capability.SECRET: 20_000,
    Capability.STORAGE: 30_000,
    Capability.CHANNEL: 40_000,
}


class BadGrant(InvalidInput):
    code = "wasm.bad_grant"
    hint = "grants are lists of distinct names; only granted secrets can be revealed"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """One granted thing. ``name`` is the host, the secret's key, the storage prefix or the channel."""

    kind: Capability
    handle: int
    name: str


class CapabilityGrantSet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one call may use. Lists are sorted and freed of doubles when the set is made.

    ``revealable_secrets`` are those of ``secret_keys`` whose values the guest may read; the others can only be attached
    to a request. ``clock_ms`` is the time that the guest sees, and it stands still; ``random_seed`` decides its random
    bytes.
    """

    http_hosts: tuple[str, ...] = ()
    secret_keys: tuple[str, ...] = ()
    storage_prefixes: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    revealable_secrets: tuple[str, ...] = ()
    clock_ms: int = 0
    random_seed: bytes = b""

    def __post_init__(self) -> None:
        for field in ("http_hosts", "secret_keys", "storage_prefixes", "channels", "revealable_secrets"):
            names = tuple(sorted(set(getattr(self, field))))
            if len(names) > MAX_GRANTS_PER_KIND:
                raise BadGrant(f"{field} has {len(names)} entries, {MAX_GRANTS_PER_KIND} are possible")
            if "" in names and field != "storage_prefixes":
                raise BadGrant(f"{field} has an empty entry")
            msgspec.structs.force_setattr(self, field, names)
        if not set(self.revealable_secrets) <= set(self.secret_keys):
            raise BadGrant("a secret that is not granted cannot be revealed")

    def names(self, kind: Capability) -> tuple[str, ...]:
        fields = (self.http_hosts, self.secret_keys, self.storage_prefixes, self.channels)
        return dict(zip(Capability, fields, strict=True))[kind]

    def counts(self) -> tuple[int, int, int, int]:
        """Return the number of handles of each kind, which is all that a worker receives."""
        return len(self.http_hosts), len(self.secret_keys), len(self.storage_prefixes), len(self.channels)

    def resolve(self, kind: Capability, handle: int) -> Grant | None:
        """Return the grant behind a guest's number, or None if it is not one of this kind."""
        place = handle - HANDLE_BASE[kind]
        names = self.names(kind)
        if not 0 <= place < len(names):
            return None
        return Grant(kind=kind, handle=handle, name=names[place])

    def handles(self, kind: Capability) -> tuple[Grant, ...]:
        base = HANDLE_BASE[kind]
        return tuple(Grant(kind=kind, handle=base + place, name=name) for place, name in enumerate(self.names(kind)))


NOTHING_GRANTED: Final = CapabilityGrantSet()
