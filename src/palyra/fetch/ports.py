"""What a fetch needs from others: a judged connection, and credentials put on a request.

The egress concept gives all of them; the daemon joins the two.
"""

from typing import Protocol

import msgspec

from palyra.egress.grant import EgressGrant
from palyra.egress.meter import Meter
from palyra.egress.target import Target
from palyra.fetch.header_rules import Headers


class Connection(Protocol):
    """A byte stream to the judged address. Nothing on it is encrypted yet."""

    async def read(self, most: int) -> bytes:
        """Some bytes; none at the peer's end of the stream."""
        ...

    async def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Door(Protocol):
    async def connect(self, grant: EgressGrant, target: Target, meter: Meter) -> tuple[Connection, str]:
        """A connection and the address it ends at. ``meter`` counts what it carries and ends it when that is spent.

        Judges the target, resolves it once, judges every address, dials one of them and confirms the peer. Raises an
        ``EgressRefused`` leaf. Cancelling it leaves no socket open.
        """
        ...


class Redaction(Protocol):
    """Takes the secrets of one request out of what comes back."""

    @property
    def times(self) -> int: ...

    def whole(self, data: bytes) -> bytes:
        """The same bytes with every spelling of a secret in them overwritten."""
        ...

    def name(self, name: bytes) -> bytes:
        """The same for a header's name, in whatever case its letters are."""
        ...

    def broken_off(self, data: bytes) -> bytes:
        """The same for bytes whose end is missing: what may be the beginning of a secret is overwritten too."""
        ...


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Headers with credentials in them: for the wire and for nothing else."""

    headers: Headers
    redaction: Redaction
    # The references of the secrets in them.
    secrets: tuple[str, ...] = ()


class Credentials(Protocol):
    async def prepare(self, grant: EgressGrant, target: Target, method: str, path: str, headers: Headers) -> Prepared:
        """The headers to send: placeholders filled, bound headers set, the caller's own copies of those dropped.

        Raises ``CredentialNotAllowed`` or ``CredentialMissing``.
        """
        ...


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What one call is given to work with: where it may go, the door there, and whose secrets it may carry."""

    grant: EgressGrant
    door: Door
    credentials: Credentials
