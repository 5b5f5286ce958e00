"""Key-encryption keys, and what the vault needs from a place that keeps them.

A key never stands in the database. What stands there is its id, the kind of place that keeps it, and what that place
needs to find or derive it again (the salt of a passphrase, for instance).
"""

import base64
import binascii
import hashlib
from collections.abc import Collection
from typing import Any, Final, NoReturn, Protocol

import msgspec

from palyra.secret import REDACTED
from palyra.vault.errors import KeyMalformed
from palyra.vault.limits import KEY_BYTES

KEY_ID_PREFIX: Final = "kek:"
_ID_DOMAIN: Final = b"palyra.vault.key-id/1\0"
_ID_CHARS: Final = 32


class KeyEncryptionKey:
    """32 bytes that wrap data keys. Its id is a digest: it tells keys apart and says nothing about them."""

    __slots__ = ("_key", "key_id")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise KeyMalformed(f"a key has {KEY_BYTES} bytes, this has {len(key)}")
        self._key = key
        self.key_id = KEY_ID_PREFIX + hashlib.sha256(_ID_DOMAIN + key).hexdigest()[:_ID_CHARS]

    def reveal(self) -> bytes:
        return self._key

    def __repr__(self) -> str:
        return f"<KeyEncryptionKey {self.key_id} {REDACTED}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not pickled")


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the database keeps of a key. ``parameters`` are public: they are of use only with the key's own secret."""

    key_id: str
    source: str
    parameters: dict[str, Any] = {}


class KeySource(Protocol):
    """A place that keeps keys. Its methods may block: they run on a thread."""

    @property
    def kind(self) -> str:
        """The word of the setting ``vault.key_source``."""
        ...

    def create(self, known: Collection[str]) -> tuple[KeyRecord, KeyEncryptionKey]:
        """A key that is none of ``known``: made, or taken from what a person provided. Kept before this returns."""
        ...

    def load(self, record: KeyRecord) -> KeyEncryptionKey:
        """Exactly the key of the record. Raises ``KeyMissing`` when it is not there, also when another one is."""
        ...

    def forget(self, record: KeyRecord) -> None:
        """Destroys a key that nothing is sealed with any more, where that is in this place's power."""
        ...


def decode_key(text: str, where: str) -> bytes:
    """32 bytes of base 64, in the standard or the URL-safe alphabet. The error never shows the text."""
    try:
        key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise KeyMalformed(f"{where} does not hold a key in base 64") from None
    if len(key) != KEY_BYTES:
        raise KeyMalformed(f"the key in {where} has {len(key)} bytes instead of {KEY_BYTES}")
    return key
