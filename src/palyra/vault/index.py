"""Index of the vault's secrets and their versions in force, which detects any rollback.

Sealed values cannot be forged, but restored old rows could put an older one back in force. So every secret has a head
with a tag under the vault's index key, and a digest covers the tags of one bucket. The state holds all digests under
its own tag, with the number of the journal entry of the last change. Each use of a secret checks its head, its bucket,
the state, and that the journal has no later change.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final, Self

import msgspec

from palyra.vault.envelope import bind
from palyra.vault.key_source import VaultTampered
from palyra.vault.limits import INDEX_BUCKETS
from palyra.vault.reference import SecretRef

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
