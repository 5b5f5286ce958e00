"""Who is at the other end: the checks on every call and on every message of a stream, in their one order.

A client certificate is there; it can be read, which gives its fingerprint; it is a certificate of ours that is neither
revoked, locked, expired nor superseded; its device is of a kind this service is for and is paired; and that device is
the one the message speaks for. The first that fails is the refusal. Inside it has its own code, for the record; outside
it is one of two words, so that whoever is refused learns nothing about anybody.
"""

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Final

from palyra.errors import Denied, PalyraError
from palyra.identity.device import DeviceId, DeviceKind
from palyra.identity.records import PeerIdentity


class Outward(StrEnum):
    """All that a refused peer is told."""

    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"


class NoCertificate(Denied):
    code = "nodes.no_certificate"
    hint = "devices connect with the certificate they got when they were paired"


class UnreadableCertificate(Denied):
    code = "nodes.unreadable_certificate"
    hint = "what the connection presented is not one X.509 certificate"


class WrongKind(Denied):
    code = "nodes.wrong_kind"
    hint = "a worker's certificate is not for nodes, nor a node's for workers"


class UnpairedDevice(Denied):
    code = "nodes.unpaired_device"
    hint = "`palyra pair code` begins a pairing"


class OtherDevice(Denied):
    code = "nodes.other_device"
    hint = "a device speaks for itself only: device_id is that of its own certificate"


# Who they are could not be established; everybody else is known and may not.
_UNESTABLISHED: Final = "identity."


def fingerprint_of_peer(certificate: bytes | None, digest: Callable[[bytes], str]) -> str:
    """The first two checks. A connection has one certificate for as long as it lives, so they hold for all of it."""
    if not certificate:
        raise NoCertificate("the connection has no client certificate")
    try:
        return digest(certificate)
    except PalyraError:
        raise
    except ValueError as error:
        raise UnreadableCertificate("the client certificate cannot be read") from error


def check_peer(
    fingerprint: str,
    *,
    identify: Callable[[str], PeerIdentity],
    kinds: Collection[DeviceKind],
    is_paired: Callable[[DeviceId], bool],
    claimed: str,
) -> PeerIdentity:
    """The checks that can come out differently from one message to the next."""
    peer = identify(fingerprint)
    if peer.kind not in kinds:
        raise WrongKind(f"a certificate of a {peer.kind.value} came where it is not for", device=peer.device_id)
    if not is_paired(peer.device_id):
        raise UnpairedDevice("the device of this certificate is not paired", device=peer.device_id)
    if claimed != peer.device_id:
        raise OtherDevice("the message names another device than its certificate", device=peer.device_id)
    return peer


def outward(refusal: PalyraError) -> Outward:
    if isinstance(refusal, NoCertificate | UnreadableCertificate) or refusal.code.startswith(_UNESTABLISHED):
        return Outward.UNAUTHENTICATED
    return Outward.PERMISSION_DENIED
