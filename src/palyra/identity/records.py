"""Certificates, devices and authorities as values: the stored rows, and the views for the rest of the program."""

import hashlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from palyra.identity.device import DeviceId, DeviceKind, DeviceState, IdentityTampered
from palyra.identity.limits import NONCE_BYTES, TAG_BYTES
from palyra.secret import Secret
from palyra.vault.envelope import AesGcm, bind
from palyra.vault.key_source import KeyEncryptionKey, VaultTampered

# The life of a certificate authority, and the sealed form its key is stored in.
#
# The key is sealed with AES-256-GCM by a key-encryption key that is kept elsewhere, in the same kinds of place as the
# vault's. The seal is bound to the trust domain, the certificate and the sealing key. So a changed seal does not open,
# nor one that was moved to another authority's row, nor one whose certificate was exchanged.

SEAL_FORMAT: Final = 1
SEAL_PURPOSE: Final = "palyra.identity.authority-key/1"


class AuthorityState(StrEnum):
    CURRENT = "current"
    """It signs new certificates."""
    OUTGOING = "outgoing"
    """It signs nothing, and is trusted until its last certificate has ended."""
    RETIRED = "retired"
    """It is no longer trusted, and its key is destroyed."""


class AuthorityEvent(StrEnum):
    REPLACE = "replace"
    RETIRE = "retire"


TRANSITIONS: Final[Mapping[tuple[AuthorityState, AuthorityEvent], AuthorityState]] = MappingProxyType(
    {
        (AuthorityState.CURRENT, AuthorityEvent.REPLACE): AuthorityState.OUTGOING,
        (AuthorityState.OUTGOING, AuthorityEvent.RETIRE): AuthorityState.RETIRED,
    }
)


def authority_id_of(certificate_der: bytes) -> str:
    """Return the SHA-256 of the certificate, which pairing codes and people compare."""
    return hashlib.sha256(certificate_der).hexdigest()


def seal_key(
    aead: AesGcm,
    random: Callable[[int], bytes],
    key: KeyEncryptionKey,
    *,
    trust_domain: str,
    certificate_der: bytes,
    private_key: bytes,
) -> bytes:
    """Seal to one format byte, the nonce, and the ciphertext with its tag."""
    nonce = random(NONCE_BYTES)
    bound = _bound(trust_domain, certificate_der, key.key_id)
    return bytes((SEAL_FORMAT,)) + nonce + aead.seal(key.reveal(), nonce, private_key, bound)


def open_key(
    aead: AesGcm, key: KeyEncryptionKey, *, trust_domain: str, certificate_der: bytes, sealed_key: bytes
) -> bytes:
    authority_id = authority_id_of(certificate_der)
    if len(sealed_key) < 1 + NONCE_BYTES + TAG_BYTES or sealed_key[0] != SEAL_FORMAT:
        raise IdentityTampered("the stored key of an authority is not in a form this version reads", id=authority_id)
    nonce, ciphertext = sealed_key[1 : 1 + NONCE_BYTES], sealed_key[1 + NONCE_BYTES :]
    try:
        return aead.open(key.reveal(), nonce, ciphertext, _bound(trust_domain, certificate_der, key.key_id))
    except VaultTampered:
        raise IdentityTampered(
            "the stored key of an authority does not open: it was changed or belongs elsewhere", id=authority_id
        ) from None


def _bound(trust_domain: str, certificate_der: bytes, key_id: str) -> bytes:
    return bind(SEAL_PURPOSE, trust_domain, authority_id_of(certificate_der), key_id)


class IssuedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A device's new certificate, and the authorities by which it recognises the daemon."""

    device_id: DeviceId
    kind: DeviceKind
    certificate_pem: bytes
    ca_bundle_pem: bytes
    generation: int
    fingerprint: str
    not_before_ms: int
    not_after_ms: int


class PeerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The other end of a connection, by its certificate."""

    device_id: DeviceId
    kind: DeviceKind
    fingerprint: str
    generation: int
    not_after_ms: int


class ServerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A listener's certificate. The chain goes from the leaf to an authority that every active device knows."""

    key_pem: Secret
    chain_pem: bytes
    fingerprint: str
    not_before_ms: int
    not_after_ms: int
    authority_id: str


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """``generation`` is the newest that was issued, ``used_generation`` the newest that a connection was made with."""

    device_id: DeviceId
    kind: DeviceKind
    state: DeviceState
    generation: int
    used_generation: int
    reason: str
    created_ms: int
    changed_ms: int


class CertificateRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that never changes. Its device's row decides whether it is in force."""

    fingerprint: str
    device_id: DeviceId
    generation: int
    key_sha256: str
    authority_id: str
    certificate_der: bytes
    not_before_ms: int
    not_after_ms: int


class AuthorityRow(msgspec.Struct, frozen=True, kw_only=True):
    """``sealed_key`` opens only together with exactly this certificate; it is empty once the authority is retired.

    ``cross_der`` is the same authority signed by the one before it, for devices that know only that one.
    """

    authority_id: str
    state: AuthorityState
    certificate_der: bytes
    cross_der: bytes
    key_id: str
    sealed_key: bytes
    created_ms: int
    not_before_ms: int
    not_after_ms: int


class DeviceIdentity(DeviceRow, frozen=True, kw_only=True):
    """A device as operators see it. ``fingerprint`` and ``not_after_ms`` are those of its newest certificate."""

    fingerprint: str
    not_after_ms: int


class AuthorityView(msgspec.Struct, frozen=True, kw_only=True):
    """``needed_until_ms`` is the end of its last certificate, or 0."""

    authority_id: str
    state: AuthorityState
    created_ms: int
    not_after_ms: int
    needed_until_ms: int
