"""The keys that seal profiles: the active one first, and those that older states may still be under."""

import base64
import binascii
import hashlib
from typing import Final, NoReturn

from palyra.browser.profile_errors import ProfileKeyBad, ProfileKeyMissing
from palyra.secret import REDACTED

VARIABLE: Final = "PALYRA_BROWSERD_STATE_ENCRYPTION_KEY"
KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 16
# The active key and the one it replaces, with room for a rotation that was begun twice.
MAX_KEYS: Final = 4
_ID_DOMAIN: Final = b"palyra.browser.state-key-id/1\0"


class StateKey:
    """Its id is a digest: it tells keys apart and says nothing about them."""

    __slots__ = ("_key", "key_id")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ProfileKeyBad(f"a key has {KEY_BYTES} bytes, this has {len(key)}")
        self._key = key
        self.key_id = hashlib.sha256(_ID_DOMAIN + key).digest()[:KEY_ID_BYTES].hex()

    def reveal(self) -> bytes:
        return self._key

    def __repr__(self) -> str:
        return f"<StateKey {self.key_id} {REDACTED}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not pickled")


class StateKeys:
    def __init__(self, active: StateKey, *older: StateKey) -> None:
        if len(older) >= MAX_KEYS:
            raise ProfileKeyBad(f"at most {MAX_KEYS} keys are kept")
        self.active = active
        self.older = older
        self._known = {key.key_id: key for key in (*older, active)}

    def __contains__(self, key_id: str) -> bool:
        return key_id in self._known

    def named(self, key_id: str) -> StateKey:
        try:
            return self._known[key_id]
        except KeyError:
            raise ProfileKeyMissing(f"the key {key_id} is not at hand", key_id=key_id) from None


def parse_keys(text: str, where: str) -> StateKeys:
    """Keys in base 64 with commas or line ends between, the active one first. The error never shows the text."""
    parts = text.replace("\n", ",").split(",")
    keys = [StateKey(_decoded(part.strip(), where)) for part in parts if part.strip()]
    if not keys:
        raise ProfileKeyBad(f"{where} holds no key")
    return StateKeys(*keys)


def _decoded(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise ProfileKeyBad(f"{where} does not hold a key in base 64") from None
