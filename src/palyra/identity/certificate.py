"""The contents of certificates as values, and the checks of a request for one: it carries a key and nothing else."""

import base64
import binascii
import hashlib
import ipaddress
import re
import ssl
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from palyra.clock import MS_PER_SECOND
from palyra.identity.device import (
    BadServerName,
    CsrAsksForAuthority,
    CsrAsksForMore,
    CsrAsksForNames,
    CsrBadSignature,
    CsrTooLarge,
    CsrWrongKey,
    SpiffeId,
    UnknownCertificate,
)
from palyra.identity.limits import (
    AUTHORITY_LIFE_MS,
    AUTHORITY_PATH_LENGTH,
    CLOCK_SKEW_MS,
    MAX_CSR_BYTES,
    MAX_SERVER_NAME_CHARS,
    MAX_SERVER_NAMES,
)

# The name every server certificate carries, and that devices ask for whatever address they dialled.
SERVER_NAME: Final = "palyra"
CURVE: Final = "secp256r1"
BASIC_CONSTRAINTS_OID: Final = "2.5.29.19"
ALTERNATIVE_NAME_OID: Final = "2.5.29.17"
# The attribute of a request that carries the extensions it asks for; those are looked at one by one.
EXTENSION_REQUEST_OID: Final = "1.2.840.113549.1.9.14"

_DNS_NAME: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")


class Purpose(StrEnum):
    AUTHORITY = "authority"
    DEVICE = "device"
    SERVER = "server"


class CertificateProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a certificate besides its key, its issuer and its serial number."""

    purpose: Purpose
    common_name: str
    not_before_ms: int
    not_after_ms: int
    uri: str = ""
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    path_length: int | None = None


class CsrFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A request, read but not yet checked. Its subject is ignored."""

    key_curve: str
    """Empty for a key that is not on an elliptic curve."""
    public_key_der: bytes
    extension_oids: tuple[str, ...]
    attribute_oids: tuple[str, ...]


def require_csr_size(csr_der: bytes) -> None:
    """Check the size, before anything parses the request."""
    if len(csr_der) > MAX_CSR_BYTES:
        raise CsrTooLarge(f"the certificate request has {len(csr_der)} bytes", limit=MAX_CSR_BYTES)


def require_plain(facts: CsrFacts) -> None:
    """Refuse a request for more than a certificate for a P-256 key."""
    if BASIC_CONSTRAINTS_OID in facts.extension_oids:
        raise CsrAsksForAuthority("the certificate request asks to be an authority, or not to be one")
    if ALTERNATIVE_NAME_OID in facts.extension_oids:
        raise CsrAsksForNames("the certificate request asks for names")
    more = [*facts.extension_oids, *(oid for oid in facts.attribute_oids if oid != EXTENSION_REQUEST_OID)]
    if more:
        raise CsrAsksForMore(f"the certificate request asks for {more[0][:64]}", oid=more[0][:64])
    if facts.key_curve != CURVE:
        raise CsrWrongKey(f"the key of the certificate request is not on P-256 ({facts.key_curve[:32] or 'no curve'})")


def require_signature(valid: bool) -> None:
    if not valid:
        raise CsrBadSignature("the certificate request is not signed by the key it is for")


def device_profile(name: SpiffeId, *, now_ms: int, life_ms: int, authority_ends_ms: int) -> CertificateProfile:
    not_before_ms, not_after_ms = _validity(now_ms, life_ms, authority_ends_ms)
    return CertificateProfile(
        purpose=Purpose.DEVICE,
        common_name=str(name.device_id),
        uri=str(name),
        not_before_ms=not_before_ms,
        not_after_ms=not_after_ms,
    )


def server_profile(names: Iterable[str], *, now_ms: int, life_ms: int, authority_ends_ms: int) -> CertificateProfile:
    """Make the profile of a server certificate. ``names`` are DNS names and addresses besides ``SERVER_NAME``."""
    dns_names, addresses = server_names(names)
    not_before_ms, not_after_ms = _validity(now_ms, life_ms, authority_ends_ms)
    return CertificateProfile(
        purpose=Purpose.SERVER,
        common_name=SERVER_NAME,
        dns_names=dns_names,
        addresses=addresses,
        not_before_ms=not_before_ms,
        not_after_ms=not_after_ms,
    )


def authority_profile(label: str, *, now_ms: int) -> CertificateProfile:
    not_before_ms, not_after_ms = _validity(now_ms, AUTHORITY_LIFE_MS, None)
    return CertificateProfile(
        purpose=Purpose.AUTHORITY,
        common_name=f"Palyra authority {label}"[:64],
        not_before_ms=not_before_ms,
        not_after_ms=not_after_ms,
        path_length=AUTHORITY_PATH_LENGTH,
    )


def server_names(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sort names into DNS names and addresses, each normalised and without duplicates."""
    dns_names, addresses = [SERVER_NAME], []
    for name in names:
        try:
            address = str(ipaddress.ip_address(name.strip("[]")))
        except ValueError:
            lowered = name.rstrip(".").lower()
            if len(lowered) > MAX_SERVER_NAME_CHARS or not _DNS_NAME.fullmatch(lowered):
                raise BadServerName(f"{name[:MAX_SERVER_NAME_CHARS]!r} is not a host's name or address") from None
            dns_names.append(lowered)
        else:
            addresses.append(address)
    if len(dns_names) + len(addresses) > MAX_SERVER_NAMES:
        raise BadServerName(f"a server certificate has at most {MAX_SERVER_NAMES} names")
    return tuple(dict.fromkeys(dns_names)), tuple(dict.fromkeys(addresses))


def _validity(now_ms: int, life_ms: int, authority_ends_ms: int | None) -> tuple[int, int]:
    """Compute start and end in whole seconds. The start allows for the skew of a device's clock."""
    not_before_ms = _whole_second(now_ms) - CLOCK_SKEW_MS
    not_after_ms = _whole_second(now_ms + life_ms)
    return not_before_ms, not_after_ms if authority_ends_ms is None else min(not_after_ms, authority_ends_ms)


def _whole_second(instant_ms: int) -> int:
    return instant_ms - instant_ms % MS_PER_SECOND


# A certificate's fingerprint is the SHA-256 of the leaf in DER, as hex.

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"


def fingerprint_of(pem_or_der: bytes) -> str:
    """Compute the fingerprint; of a chain in PEM, that of its first certificate."""
    return hashlib.sha256(der_of(pem_or_der)).hexdigest()


def der_of(pem_or_der: bytes) -> bytes:
    """Decode the first certificate to DER, without reading its contents."""
    start = pem_or_der.find(_BEGIN)
    if start < 0:
        return pem_or_der
    body, end, _ = pem_or_der[start + len(_BEGIN) :].partition(_END)
    try:
        if not end:
            raise binascii.Error
        return base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error:
        raise UnknownCertificate("the certificate cannot be read") from None


def pem_of(certificate_der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(certificate_der).encode()
