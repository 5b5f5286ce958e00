"""The checks on every peer, at the gRPC services of the device listener, and the keys of workers' certificates."""

import hashlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc

from palyra.clock import Clock
from palyra.devicelink.limits import CODE_KEY
from palyra.devicelink.server.peer_checks import (
    Outward,
    RefusalCounts,
    RefusalKind,
    check_peer,
    fingerprint_of_peer,
    outward,
)
from palyra.errors import Denied, InvalidInput, LimitExceeded, PalyraError, RemoteError
from palyra.identity.device import DeviceId, DeviceKind
from palyra.identity.records import PeerIdentity
from palyra.signing.p256 import P256Verifier

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager

# Certificates whose keys are cached: a worker that reconnects shows the same one.
MAX_REMEMBERED: Final = 4_096


class WorkerKeys:
    def __init__(self, identity: "Callable[[], IdentityManager]") -> None:
        self._identity = identity
        # By the certificate's digest, which has a twentieth of its size.
        self._known: dict[bytes, P256Verifier] = {}

    def of_certificate(self, pem: bytes) -> P256Verifier:
        digest = hashlib.sha256(pem).digest()
        known = self._known.get(digest)
        if known is None:
            if len(self._known) >= MAX_REMEMBERED:
                del self._known[next(iter(self._known))]
            known = self._known[digest] = P256Verifier.from_certificate(pem)
        return known

    def of_device(self, device_id: str, kind: DeviceKind) -> P256Verifier | None:
        pem = self._identity().certificate_in_use(device_id, kind)
        return None if pem is None else self.of_certificate(pem)


# One gate serves all services of the device listener. A service checks the peer of each call, and a stream that of each
# message. A refused peer gets one of two status codes and nothing else. The refusal is counted and, at most once a
# minute for each kind, recorded.

# Certificates whose fingerprint is cached: a connection shows the same one with every call.
MAX_REMEMBERED_CERTIFICATES: Final = 4096
_STATUS: Final = {
    Outward.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Outward.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
}


@dataclass(eq=False, repr=False)
class PeerGate:
    """``on_refused`` gets the code of every refusal, for a counter."""

    identities: "IdentityManager"
    fingerprint_of: Callable[[bytes], str]
    is_paired: Callable[[DeviceId], bool]
    record: Callable[[RefusalKind, int], Awaitable[None]]
    clock: Clock
    on_refused: Callable[[str], None] = lambda _code: None

    def __post_init__(self) -> None:
        self._counts = RefusalCounts()
        # By the digest of the certificate in PEM, which has a twentieth of its size.
        self._known: dict[bytes, str] = {}

    async def admit(self, context: Any, kinds: Collection[DeviceKind], claimed: str, method: str) -> PeerIdentity:
        """Return the peer of a call, or end the call."""
        return await self.admit_message(context, await self.fingerprint(context, method), kinds, claimed, method)

    async def admit_renewal(
        self, context: Any, kinds: Collection[DeviceKind], claimed: str, method: str
    ) -> PeerIdentity:
        """Admit a peer, also with a superseded certificate: the renewal then locks its device."""
        fingerprint = await self.fingerprint(context, method)
        try:
            return self.check(fingerprint, kinds, claimed, identify=self.identities.identify_for_renewal)
        except PalyraError as refusal:
            await self.refuse(context, refusal, method, fingerprint)

    async def renew_certificate(
        self,
        context: Any,
        kinds: Collection[DeviceKind],
        request: Any,
        method: str,
        status: grpc.StatusCode | None = None,
    ) -> dict[str, Any]:
        """Renew the peer's certificate and return the fields of the response. ``status`` is that of other errors."""
        peer = await self.admit_renewal(context, kinds, request.device_id, method)
        try:
            issued = await self.identities.renew(peer, request.csr_der, request.generation)
        except Denied as refusal:
            await self.refuse(context, refusal, method, peer.fingerprint)
        except PalyraError as error:
            await abort_with(context, error, status)
        return {name: getattr(issued, name) for name in ("certificate_pem", "ca_bundle_pem", "generation")}

    async def fingerprint(self, context: Any, method: str) -> str:
        """Return the fingerprint. A stream does this once, then calls ``admit_message`` for each message."""
        found = context.auth_context().get("x509_pem_cert")
        certificate = found[0] if found else None
        digest = b"" if certificate is None else hashlib.sha256(certificate).digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        try:
            fingerprint = fingerprint_of_peer(certificate, self.fingerprint_of)
        except PalyraError as refusal:
            await self.refuse(context, refusal, method)
        if certificate is not None:
            if len(self._known) >= MAX_REMEMBERED_CERTIFICATES:
                del self._known[next(iter(self._known))]
            self._known[digest] = fingerprint
        return fingerprint

    async def admit_message(
        self, context: Any, fingerprint: str, kinds: Collection[DeviceKind], claimed: str, method: str
    ) -> PeerIdentity:
        try:
            return self.check(fingerprint, kinds, claimed)
        except PalyraError as refusal:
            await self.refuse(context, refusal, method, fingerprint)

    def check(
        self,
        fingerprint: str,
        kinds: Collection[DeviceKind],
        claimed: str,
        *,
        identify: Callable[[str], PeerIdentity] | None = None,
    ) -> PeerIdentity:
        return check_peer(
            fingerprint,
            identify=identify or self.identities.identify,
            kinds=kinds,
            is_paired=self.is_paired,
            claimed=claimed,
        )

    async def refuse(self, context: Any, refusal: PalyraError, method: str, fingerprint: str = "") -> NoReturn:
        """Count the refusal, record it if due, and end the call with only a status."""
        await self.note(refusal, method, fingerprint)
        answer = outward(refusal)
        await context.abort(_STATUS[answer], answer.value)
        raise AssertionError("abort does not return")

    async def note(self, refusal: PalyraError, method: str, fingerprint: str = "") -> None:
        self.on_refused(refusal.code)
        kind = RefusalKind(method, refusal.code, str(refusal.details.get("device", "")), fingerprint)
        count = self._counts.note(kind, self.clock.monotonic())
        if count:
            await self.record(kind, count)

    @property
    def refused(self) -> int:
        return self._counts.total


async def turn_away(context: Any) -> NoReturn:
    """End a stream that the daemon cut, and not because of one of its messages."""
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, Outward.PERMISSION_DENIED.value)
    raise AssertionError("abort does not return")


async def abort_with(context: Any, error: PalyraError, status: grpc.StatusCode | None = None) -> NoReturn:
    """End a call of a known device with the error's own code, which the device can act on."""
    if status is None:
        if isinstance(error, InvalidInput):
            status = grpc.StatusCode.INVALID_ARGUMENT
        elif isinstance(error, LimitExceeded):
            status = grpc.StatusCode.RESOURCE_EXHAUSTED
        else:
            # Not UNAVAILABLE: a client takes that for a broken connection and tries again by itself.
            status = grpc.StatusCode.FAILED_PRECONDITION
    code = error.remote_code if isinstance(error, RemoteError) else error.code
    await context.abort(status, f"{code}: {error.message}", ((CODE_KEY, code),))
    raise AssertionError("abort does not return")
