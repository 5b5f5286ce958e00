"""Devices: their kinds, ids and SPIFFE names, their errors, their states, and the rules of renewal."""

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self

import msgspec

from palyra.errors import Denied, InvalidInput, LimitExceeded, Tampered, Unavailable
from palyra.identity.limits import CLOCK_SKEW_MS, MAX_CSR_BYTES, MAX_DEVICES, MAX_LIVE_CERTIFICATES
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
    """Make the trust domain of a state directory, so that devices of two installations cannot be confused."""
    return f"palyra-{Ulid.new().lower()}"


def actor_of(kind: DeviceKind, device_id: str) -> str:
    """Return the journal's name of a device that acts for itself."""
    return f"{kind.value}/{device_id}"


# The errors of identity, for the operator. The listener decides what a refused device learns.


class UnknownCertificate(Denied):
    code = "identity.unknown_certificate"
    hint = "this daemon does not know the certificate: pair the device again"
    http_status = 401


class UnknownDevice(InvalidInput):
    code = "identity.unknown_device"
    hint = "`palyra identity show` lists the devices there are"
    http_status = 404


class DeviceRevoked(Denied):
    code = "identity.revoked"
    hint = "an operator ended this device's access; pair it again if that was a mistake"


class DeviceLocked(Denied):
    """Two parties hold this device's identity, or one lost its place. Palyra cannot tell which is the true one."""

    code = "identity.locked"
    hint = "find out whether its key was copied, revoke it, and pair the device again"


class CertificateExpired(Denied):
    code = "identity.expired"
    hint = "the device was away for longer than its certificate lives: pair it again"


class CertificateSuperseded(Denied):
    """An older certificate after a newer one of the same device was used."""

    code = "identity.superseded"
    hint = "the device has a newer certificate; if it does not know of one, somebody else renewed in its name"


class StaleGeneration(DeviceLocked):
    """Raised once, by the request that shows it; afterwards the device is simply locked."""

    code = "identity.stale_generation"


class GenerationAhead(InvalidInput):
    """A message that claims a newer certificate than the one the connection was made with."""

    code = "identity.generation_ahead"
    hint = "connect with the newer certificate first"


class AlreadyIssued(Denied):
    """A first certificate is issued once. The same key gets the same answer, another key is refused."""

    code = "identity.already_issued"
    hint = "pair the device again, under a new id"


class CsrMalformed(InvalidInput):
    code = "identity.csr_malformed"
    hint = "send a PKCS#10 certificate request in DER"


class CsrTooLarge(LimitExceeded):
    code = "identity.csr_too_large"
    hint = f"a certificate request has at most {MAX_CSR_BYTES} bytes"
    http_status = 413


class CsrBadSignature(InvalidInput):
    """The sender of the request does not hold its key."""

    code = "identity.csr_bad_signature"
    hint = "sign the request with the key it is for"


class CsrWrongKey(InvalidInput):
    code = "identity.csr_wrong_key"
    hint = "use an ECDSA key on P-256"


class CsrAsksForAuthority(Denied):
    code = "identity.csr_asks_for_authority"
    hint = "a device is no authority: leave basic constraints out of the request"


class CsrAsksForNames(Denied):
    code = "identity.csr_asks_for_names"
    hint = "the daemon names the device: leave alternative names out of the request"


class CsrAsksForMore(Denied):
    code = "identity.csr_asks_for_more"
    hint = "a request carries a key and nothing else: leave extensions and attributes out"


class TooManyDevices(LimitExceeded):
    code = "identity.too_many_devices"
    hint = f"revoke some: a daemon knows {MAX_DEVICES}"


class TooManyCertificates(LimitExceeded):
    code = "identity.too_many_certificates"
    hint = f"a device may have {MAX_LIVE_CERTIFICATES} certificates that have not ended; wait until one has"


class BadServerName(InvalidInput):
    code = "identity.bad_server_name"
    hint = "name hosts by DNS name or address, without a port"


class NoAuthority(InvalidInput):
    code = "identity.no_authority"
    hint = "nothing to replace: the first pairing code or paired device makes the authority"
    http_status = 404


class RotationRunning(Denied):
    code = "identity.rotation_running"
    hint = "the authority before is still trusted; `palyra identity show` says until when"
    http_status = 409


class NotOpened(Unavailable):
    """A fault in the program that uses the manager: what needs an authority comes after ``open``."""

    code = "identity.not_opened"
    hint = "this is a fault in Palyra: the authority was asked for before it was opened"


class AuthorityUnavailable(Unavailable):
    code = "identity.authority_unavailable"
    hint = "the authorities change faster than their keys can be loaded: look who else uses this state directory"


class IdentityTampered(Tampered):
    """A stored record was changed, or comes from elsewhere."""

    code = "identity.tampered"
    hint = "somebody changed the database; compare with `palyra journal verify` and a backup"


# The rules of renewal: generations only go forward, one at a time.


class RenewalVerdict(StrEnum):
    NEXT = "next"
    """Issue a certificate of the next generation."""
    AGAIN = "again"
    """Repeat the answer that was lost."""
    STALE = "stale"
    """Lock the device: another party has renewed from this generation."""


def issued_ms(not_before_ms: int) -> int:
    """Compute when a certificate was made. Its start is earlier, by the skew of a device's clock."""
    return not_before_ms + CLOCK_SKEW_MS


def renewal_due_ms(not_before_ms: int, not_after_ms: int) -> int:
    """Compute when renewal is due, at two thirds of a certificate's life. Both sides use this."""
    start = issued_ms(not_before_ms)
    return start + (not_after_ms - start) * 2 // 3


def judge_renewal(
    *, presented: int, newest: int, newest_used: bool, requested_key: str, newest_key: str
) -> RenewalVerdict:
    """Decide a renewal. The device has the generation ``presented``; ``newest`` is the last one issued to it.

    A device stores its new key before it asks, so it can ask again with the same key if no answer came. Once the newest
    certificate was used, the answer did arrive, and an honest device never asks with an older one.
    """
    if presented == newest:
        return RenewalVerdict.NEXT
    if presented == newest - 1 and not newest_used and requested_key == newest_key:
        return RenewalVerdict.AGAIN
    return RenewalVerdict.STALE


# The states of a device, and the order of the reasons to refuse a certificate.


class DeviceState(StrEnum):
    ACTIVE = "active"
    LOCKED = "locked"
    """A stale generation was presented: its key may have been copied."""
    REVOKED = "revoked"
    """An operator ended it for good. The machine is paired again under another id."""


class DeviceEvent(StrEnum):
    LOCK = "lock"
    REVOKE = "revoke"


# Other pairs change nothing: an ended device keeps its state and its first reason.
TRANSITIONS: Final[Mapping[tuple[DeviceState, DeviceEvent], DeviceState]] = MappingProxyType(
    {
        (DeviceState.ACTIVE, DeviceEvent.LOCK): DeviceState.LOCKED,
        (DeviceState.ACTIVE, DeviceEvent.REVOKE): DeviceState.REVOKED,
        (DeviceState.LOCKED, DeviceEvent.REVOKE): DeviceState.REVOKED,
    }
)


def find_device_refusal(state: DeviceState, device_id: str) -> Denied | None:
    if state is DeviceState.REVOKED:
        return DeviceRevoked(f"the device {device_id} is revoked", device_id=device_id)
    if state is DeviceState.LOCKED:
        return DeviceLocked(f"the device {device_id} is locked", device_id=device_id)
    return None


def find_certificate_refusal(
    *, state: DeviceState, device_id: str, generation: int, used_generation: int, not_after_ms: int, now_ms: int
) -> Denied | None:
    """Return why a known certificate is refused now, or None. An operator's decision comes before expiry."""
    refused = find_device_refusal(state, device_id)
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
