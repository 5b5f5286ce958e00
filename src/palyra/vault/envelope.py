"""Stored form of a secret, a value under a data key under a key-encryption key; and the index that detects rollbacks.

Both layers are AES-256-GCM. The place of a record (vault, scope, key, version, wrapping key) is not stored in it but
bound as associated data. So a record that was changed, or moved to another place, does not open. A stored layer is one
format byte, the nonce, and the ciphertext with its tag.

Sealed values cannot be forged, but restored old rows could put an older one back in force. So every secret has a head
with a tag under the vault's index key, and a digest covers the tags of one bucket. The state holds all digests under
its own tag, with the number of the journal entry of the last change. Each use of a secret checks its head, its bucket,
the state, and that the journal has no later change.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable
from typing import Final, Self

import msgspec

from palyra.vault.key_source import KeyEncryptionKey, UnknownFormat, VaultTampered
from palyra.vault.limits import INDEX_BUCKETS, KEY_BYTES, NONCE_BYTES, TAG_BYTES
from palyra.vault.reference import SecretRef


class AesGcm:
    """AES-256-GCM of the ``cryptography`` package, imported when the first secret is sealed or opened."""

    def seal(self, key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(key).encrypt(nonce, plaintext, associated)

    def open(self, key: bytes, nonce: bytes, ciphertext: bytes, associated: bytes) -> bytes:
        """Open a ciphertext, or raise ``VaultTampered`` if anything differs from the sealed record."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(key).decrypt(nonce, ciphertext, associated)
        except InvalidTag:
            raise VaultTampered("a stored record does not open: it was changed or belongs elsewhere") from None


LAYER_FORMAT: Final = 1
VALUE_PURPOSE: Final = "palyra.vault.value/1"
WRAP_PURPOSE: Final = "palyra.vault.wrap/1"
INDEX_PURPOSE: Final = "palyra.vault.index/1"

RandomBytes = Callable[[int], bytes]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Place of one version of one secret. A version number is never reused, also not after a deletion."""

    vault_id: str
    ref: SecretRef
    version: int

    def bound(self, purpose: str, *more: str) -> bytes:
        return bind(purpose, self.vault_id, str(self.ref.scope), self.ref.key, str(self.version), *more)


class SealedVersion(msgspec.Struct, frozen=True, kw_only=True):
    key_id: str
    wrapped: bytes
    sealed: bytes


class Sealer:
    """Sealer and opener of records, with a given cipher and source of randomness."""

    def __init__(self, aead: AesGcm, random: RandomBytes) -> None:
        self._aead = aead
        self._random = random

    def seal(self, key: KeyEncryptionKey, place: Place, value: bytes) -> SealedVersion:
        data_key = self._random(KEY_BYTES)
        return SealedVersion(
            key_id=key.key_id,
            wrapped=self._seal(key.reveal(), data_key, place.bound(WRAP_PURPOSE, key.key_id)),
            sealed=self._seal(data_key, value, place.bound(VALUE_PURPOSE)),
        )

    def open(self, key: KeyEncryptionKey, place: Place, version: SealedVersion) -> bytes:
        if key.key_id != version.key_id:
            raise VaultTampered("the record names another key than the one it is opened with")
        data_key = self._unwrap(key, place, version.wrapped)
        return self._open(data_key, version.sealed, place.bound(VALUE_PURPOSE))

    def rewrap(self, old: KeyEncryptionKey, new: KeyEncryptionKey, place: Place, wrapped: bytes) -> bytes:
        """Wrap the same data key under another key, without the value."""
        data_key = self._unwrap(old, place, wrapped)
        return self._seal(new.reveal(), data_key, place.bound(WRAP_PURPOSE, new.key_id))

    def new_index_key(self) -> bytes:
        return self._random(KEY_BYTES)

    def wrap_index_key(self, key: KeyEncryptionKey, vault_id: str, index_key: bytes) -> bytes:
        return self._seal(key.reveal(), index_key, bind(INDEX_PURPOSE, vault_id, key.key_id))

    def unwrap_index_key(self, key: KeyEncryptionKey, vault_id: str, wrapped: bytes) -> bytes:
        return self._open(key.reveal(), wrapped, bind(INDEX_PURPOSE, vault_id, key.key_id))

    def _unwrap(self, key: KeyEncryptionKey, place: Place, wrapped: bytes) -> bytes:
        data_key = self._open(key.reveal(), wrapped, place.bound(WRAP_PURPOSE, key.key_id))
        if len(data_key) != KEY_BYTES:
            raise VaultTampered("the wrapped data key has a wrong length")
        return data_key

    def _seal(self, key: bytes, plaintext: bytes, associated: bytes) -> bytes:
        nonce = self._random(NONCE_BYTES)
        return bytes((LAYER_FORMAT,)) + nonce + self._aead.seal(key, nonce, plaintext, associated)

    def _open(self, key: bytes, layer: bytes, associated: bytes) -> bytes:
        if not isinstance(layer, bytes) or len(layer) < 1 + NONCE_BYTES + TAG_BYTES:
            raise VaultTampered("a stored record is cut short")
        if layer[0] != LAYER_FORMAT:
            raise UnknownFormat(f"a stored record has the format {layer[0]}, and this version reads {LAYER_FORMAT}")
        return self._aead.open(key, layer[1 : 1 + NONCE_BYTES], layer[1 + NONCE_BYTES :], associated)


def bind(*fields: str) -> bytes:
    """Join fields with length prefixes, so that no two lists have the same bytes."""
    encoded = (field.encode("utf-8") for field in fields)
    return b"".join(len(field).to_bytes(4, "big") + field for field in encoded)


HEAD_PURPOSE: Final = "palyra.vault.head/1"
BUCKET_PURPOSE: Final = "palyra.vault.bucket/1"
STATE_PURPOSE: Final = "palyra.vault.state/1"
DIGEST_BYTES: Final = 32


class SecretHead(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of one secret, in the order of its columns.

    A deleted secret keeps its head, so that its version numbers are never reused.
    """

    ref: SecretRef
    current: int
    oldest: int
    live: bool
    created_ms: int
    updated_ms: int
    updated_by: str

    def tag(self, vault_id: str, index_key: bytes) -> bytes:
        fields = bind(
            HEAD_PURPOSE,
            vault_id,
            str(self.ref.scope),
            self.ref.key,
            *map(str, (self.current, self.oldest, int(self.live), self.created_ms, self.updated_ms)),
            self.updated_by,
        )
        return _mac(index_key, fields)


class VaultState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the vault, in the order of its columns.

    ``previous_key`` is empty unless a rotation is under way. ``seq`` is the journal entry of the last change.
    """

    vault_id: str
    revision: int
    seq: int
    live: int
    active_key: str
    previous_key: str
    buckets: bytes

    @classmethod
    def first(cls, vault_id: str, active_key: str, index_key: bytes) -> Self:
        empty = b"".join(bucket_digest(index_key, vault_id, bucket, ()) for bucket in range(INDEX_BUCKETS))
        return cls(vault_id=vault_id, revision=0, seq=0, live=0, active_key=active_key, previous_key="", buckets=empty)

    def keys_in_use(self) -> frozenset[str]:
        return frozenset((self.active_key, self.previous_key)) - {""}

    def tag(self, index_key: bytes) -> bytes:
        fields = bind(
            STATE_PURPOSE,
            self.vault_id,
            *map(str, (self.revision, self.seq, self.live)),
            self.active_key,
            self.previous_key,
        )
        return _mac(index_key, fields + self.buckets)

    def with_bucket(self, bucket: int, digest: bytes) -> bytes:
        start = bucket * DIGEST_BYTES
        return self.buckets[:start] + digest + self.buckets[start + DIGEST_BYTES :]

    def require(self, index_key: bytes, tag: bytes, newest_seq: int | None) -> None:
        if not hmac.compare_digest(self.tag(index_key), tag):
            raise VaultTampered("the vault's state was changed")
        if newest_seq is not None and newest_seq > self.seq:
            raise VaultTampered(
                f"the journal's entry {newest_seq} is a change that the vault does not have: it was turned back"
            )

    def require_bucket(self, index_key: bytes, bucket: int, tags: Iterable[bytes]) -> None:
        start = bucket * DIGEST_BYTES
        expected = self.buckets[start : start + DIGEST_BYTES]
        if not hmac.compare_digest(bucket_digest(index_key, self.vault_id, bucket, tags), expected):
            raise VaultTampered("an entry of the vault's index was changed, removed, added or turned back")


def require_head(head: SecretHead, vault_id: str, index_key: bytes, tag: bytes) -> None:
    if not hmac.compare_digest(head.tag(vault_id, index_key), tag):
        raise VaultTampered(f"the entry of {head.ref} was changed", ref=str(head.ref))


def bucket_of(ref: SecretRef) -> int:
    return int.from_bytes(hashlib.sha256(str(ref).encode()).digest()[:4], "big") % INDEX_BUCKETS


def bucket_digest(index_key: bytes, vault_id: str, bucket: int, tags: Iterable[bytes]) -> bytes:
    """Digest the tags of a bucket's heads, in the order of scope and key. All have one length."""
    return _mac(index_key, bind(BUCKET_PURPOSE, vault_id, str(bucket)) + b"".join(tags))


def _mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
