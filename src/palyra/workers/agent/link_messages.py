"""What the daemon says on the stream, as values."""

import msgspec

from palyra.errors import PalyraError
from palyra.workers.agent.offer import LeaseOffer


class Welcomed(msgspec.Struct, frozen=True, kw_only=True):
    session: int
    heartbeat_interval_ms: int
    settle_grace_ms: int
    max_batch_bytes: int
    void_lease_ids: tuple[str, ...] = ()
    ca_bundle_pem: str = ""


class Challenged(msgspec.Struct, frozen=True):
    nonce: str


class AttestationAnswered(msgspec.Struct, frozen=True):
    """An empty code accepts."""

    code: str
    message: str


class Acknowledged(msgspec.Struct, frozen=True):
    sequence: int


class Offered(msgspec.Struct, frozen=True):
    offer: LeaseOffer


class Unreadable(msgspec.Struct, frozen=True):
    """An offer that could not be read: it is declined by the id that it has."""

    lease_id: str
    fence: int
    refusal: PalyraError


class Cancelled(msgspec.Struct, frozen=True):
    lease_id: str
    reason: str


class Answered(msgspec.Struct, frozen=True):
    lease_id: str
    code: str
    message: str


class Owed(msgspec.Struct, frozen=True):
    """The daemon asks what there is of a lease that ended without this worker."""

    lease_id: str
    fence: int
    nonce: str


class AuthoritiesChanged(msgspec.Struct, frozen=True):
    ca_bundle_pem: str
    renew_now: bool


class Dismissed(msgspec.Struct, frozen=True):
    code: str


Heard = (
    Welcomed
    | Challenged
    | AttestationAnswered
    | Acknowledged
    | Offered
    | Unreadable
    | Cancelled
    | Answered
    | Owed
    | AuthoritiesChanged
    | Dismissed
)
