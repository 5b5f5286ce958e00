"""What the daemon says on the stream, as values."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from palyra.devicelink.agent.identity import Credentials, Renewed
from palyra.errors import PalyraError
from palyra.fleet.agent.lease import LeaseOffer
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.fleet.domain.signed_statement import SignedStatement
from palyra.sandbox.network.call_network import NetworkDoor


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


# What a worker's agent needs from outside itself: its identity, its executors, and its way out.

# Told the stream (1 standard output, 2 standard error) and the bytes as they come.
OutputSink = Callable[[int, bytes], None]


class DeviceKey(Protocol):
    """The key of the certificate in force. Statements and envelopes are signed with it."""

    @property
    def key_id(self) -> str: ...

    def sign(self, message: bytes) -> bytes: ...

    def public_key(self) -> bytes: ...


class WorkerIdentity(Protocol):
    """The worker's pairing, on disk before anything of it is used."""

    @property
    def worker_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def servers(self) -> Sequence[str]: ...

    @property
    def generation(self) -> int: ...

    @property
    def renew_at_ms(self) -> int: ...

    @property
    def not_after_ms(self) -> int: ...

    def credentials(self) -> Credentials: ...

    def key(self) -> DeviceKey: ...

    async def request_renewal(self) -> bytes:
        """A certificate request for a key that is on disk: an answer that gets lost is asked for again with it."""

    async def take_renewal(self, renewed: Renewed) -> None: ...

    async def trust(self, ca_bundle_pem: str) -> None: ...


class CallEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended on this machine; ``executor`` is the place it ran in."""

    outcome: LeaseOutcome
    result: Any = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] = []
    executor: str = ""
    elapsed_ms: int = 0


class Place(Protocol):
    """Where one lease's files are."""

    @property
    def workspace(self) -> Any: ...

    @property
    def beside(self) -> Any: ...


class LeasedCalls(Protocol):
    """Runs calls by the same executors as a daemon. Cancelling ``perform`` leaves nothing running."""

    @property
    def capabilities(self) -> tuple[str, ...]: ...

    def require_offered(self, offer: LeaseOffer) -> None:
        """Raises for a call that this machine does not run."""

    async def perform(self, offer: LeaseOffer, place: Place, timeout_ms: int, sink: OutputSink) -> CallEnd:
        """Never raises for what a call can do: a deadline, a cancellation and a fault are ends too."""

    def is_protected(self, names: tuple[str, ...]) -> bool: ...


class Tells(Protocol):
    """Whoever watches this worker: a person's terminal, and the file behind the status command."""

    def say(self, text: str) -> None: ...

    def state(self, state: str, **facts: Any) -> None: ...


class EgressOfLease(Protocol):
    """The worker's way out: a proxy in a process and under an identity of its own.

    It has the daemon's word of what each lease may reach; the worker names the lease and learns it. Without one no
    program on this worker gets any network, and the attestation says that none is attested.
    """

    async def binding(self, worker_id: str, nonce: str) -> tuple[str, SignedStatement]:
        """The proxy's id and its signed word for this challenge."""

    async def hosts(self, lease_id: str, fence: int) -> tuple[str, ...]:
        """The rules of what the lease may reach; none where it may reach nothing."""

    def network(self, lease_id: str, fence: int) -> NetworkDoor: ...
