"""Events of egress, for the journal, the receipt and the metrics, and the interfaces egress needs from others.

No event holds a secret.
"""

from typing import Literal, Protocol, Self

import msgspec

from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.refusal import EgressRefused, Refusal
from palyra.egress.domain.target import Target
from palyra.secret import Secret

# How a program asked: the two proxy protocols, plain HTTP through the proxy, the synthetic addresses and names of
# the sandbox's own network, or the fetch tool.
Face = Literal["socks5", "connect", "http", "transparent", "dns", "fetch"]


class Connected(msgspec.Struct, frozen=True, kw_only=True, tag="egress.connected"):
    target: Target
    address: str
    face: Face


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="egress.refused"):
    """``violation`` marks what an honest, working program does not cause."""

    refusal: Refusal
    face: Face
    violation: bool

    @classmethod
    def of(cls, error: EgressRefused, face: Face) -> Self:
        return cls(refusal=error.refusal(), face=face, violation=error.violation)


class Closed(msgspec.Struct, frozen=True, kw_only=True, tag="egress.closed"):
    """``up`` and ``down`` are bytes to and from the target; ``reason`` is a word or the code of a refusal."""

    target: Target
    up: int
    down: int
    reason: str


class CredentialUsed(msgspec.Struct, frozen=True, kw_only=True, tag="egress.credential_used"):
    target: Target
    secret_ref: str
    header_name: str
    method: str
    path: str


class ResponseRedacted(msgspec.Struct, frozen=True, kw_only=True, tag="egress.response_redacted"):
    """A response held the injected secret, ``times`` times; the tool saw it blacked out."""

    target: Target
    secret_ref: str
    times: int


EgressEvent = Connected | Refused | Closed | CredentialUsed | ResponseRedacted


class Resolver(Protocol):
    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return every address of a canonical name, unjudged. Raise ``NameUnresolved``."""
        ...


class SecretSource(Protocol):
    async def reveal(self, grant: EgressGrant, secret_ref: str, target: Target) -> Secret:
        """Return the secret once policy has allowed its use here and the use is recorded; raise otherwise."""
        ...


class EgressObserver(Protocol):
    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        """Take one event without blocking and without raising."""
        ...
