"""Keys from the environment: for containers whose platform hands secrets over that way.

The variable holds one key, or, while a rotation is wanted, the new one and the old one with a comma between. It is the
weakest of the places: whoever can read the process's environment has the key.
"""

from collections.abc import Collection, Mapping
from typing import Final

from palyra.vault.errors import KeyMalformed, KeyMissing, NewKeyNeeded
from palyra.vault.key_source import KeyEncryptionKey, KeyRecord, decode_key

VARIABLE: Final = "PALYRA_VAULT_KEY"
_MAX_KEYS: Final = 2


class EnvironmentKeys:
    kind = "environment"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def create(self, known: Collection[str]) -> tuple[KeyRecord, KeyEncryptionKey]:
        newest = self._keys()[0]
        if newest.key_id in known:
            raise NewKeyNeeded(
                f"the first key in {VARIABLE} is already in use", hint=f"set {VARIABLE}=NEW,OLD and start again"
            )
        return KeyRecord(key_id=newest.key_id, source=self.kind), newest

    def load(self, record: KeyRecord) -> KeyEncryptionKey:
        for key in self._keys():
            if key.key_id == record.key_id:
                return key
        raise KeyMissing(f"{VARIABLE} does not hold the key {record.key_id}", key_id=record.key_id)

    def forget(self, record: KeyRecord) -> None:
        """The variable is its owner's to change."""

    def _keys(self) -> list[KeyEncryptionKey]:
        raw = self._environ.get(VARIABLE, "")
        if not raw.strip():
            raise KeyMissing(f"{VARIABLE} is not set", hint=f"set {VARIABLE} to 32 random bytes in base 64")
        parts = raw.split(",")
        if len(parts) > _MAX_KEYS:
            raise KeyMalformed(f"{VARIABLE} holds more than {_MAX_KEYS} keys")
        return [KeyEncryptionKey(decode_key(part.strip(), VARIABLE)) for part in parts]
