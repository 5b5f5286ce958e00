"""The life of a certificate authority, and the sealed form its key is stored in.

The key is sealed with AES-256-GCM under a key-encryption key that is kept elsewhere, by the same kinds of place as the
vault's. What it belongs to (which trust domain, which certificate, under which key) is not stored in the seal but bound
to it: a seal that was changed, or moved to another authority's row, does not open, and neither does one whose
certificate was exchanged.
"""

import hashlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from palyra.identity.errors import IdentityTampered
from palyra.identity.limits import NONCE_BYTES, TAG_BYTES
from palyra.vault.envelope import Aead, bind
from palyra.vault.errors import VaultTampered
from palyra.vault.key_source import KeyEncryptionKey

SEAL_FORMAT: Final = 1
SEAL_PURPOSE: Final = "palyra.identity.authority-key/1"


class AuthorityState(StrEnum):
    CURRENT = "current"
    """Signs whatever is issued."""
    OUTGOING = "outgoing"
    """Signs nothing any more and is still trusted, until the last certificate by it has ended."""
    RETIRED = "retired"
    """Trusted by nobody; its key is destroyed."""


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
    """SHA-256 of the certificate: what pairing codes and people compare."""
    return hashlib.sha256(certificate_der).hexdigest()


def may_retire(needed_until_ms: int, now_ms: int) -> bool:
    """``needed_until_ms`` is when the last certificate by it ends that a device may still use; 0 if there is none."""
    return needed_until_ms <= now_ms


def seal_key(
    aead: Aead,
    random: Callable[[int], bytes],
    key: KeyEncryptionKey,
    *,
    trust_domain: str,
    certificate_der: bytes,
    private_key: bytes,
) -> bytes:
    """One format byte, the nonce, and the ciphertext with its tag."""
    nonce = random(NONCE_BYTES)
    bound = _bound(trust_domain, certificate_der, key.key_id)
    return bytes((SEAL_FORMAT,)) + nonce + aead.seal(key.reveal(), nonce, private_key, bound)


def open_key(
    aead: Aead, key: KeyEncryptionKey, *, trust_domain: str, certificate_der: bytes, sealed_key: bytes
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
