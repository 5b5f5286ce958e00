"""Keys in the operating system's keyring, by the ``keyring`` package, which is an optional extra.

It speaks to the Secret Service, KWallet, the macOS keychain and Windows. Backends that keep nothing, or keep it in
plain files, are refused: they would only look like a keyring.
"""

import base64
import importlib
import secrets
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from palyra.vault.errors import KeyMissing, KeyringUnavailable
from palyra.vault.key_source import KeyEncryptionKey, KeyRecord, decode_key
from palyra.vault.limits import KEY_BYTES

SERVICE: Final = "palyra vault"
_TRUSTED: Final = (
    "keyring.backends.SecretService",
    "keyring.backends.libsecret",
    "keyring.backends.kwallet",
    "keyring.backends.macOS",
    "keyring.backends.Windows",
)
_CHAIN: Final = "keyring.backends.chainer"


class OsKeyring:
    kind = "keyring"

    def __init__(self, load_package: Callable[[], Any] = lambda: importlib.import_module("keyring")) -> None:
        self._load_package = load_package

    def create(self, known: Collection[str]) -> tuple[KeyRecord, KeyEncryptionKey]:
        keyring = self._keyring()
        key = KeyEncryptionKey(secrets.token_bytes(KEY_BYTES))
        text = base64.b64encode(key.reveal()).decode()
        _asking("store the key", lambda: keyring.set_password(SERVICE, key.key_id, text))
        if _asking("read the key back", lambda: keyring.get_password(SERVICE, key.key_id)) != text:
            raise KeyringUnavailable("the keyring did not keep the key")
        return KeyRecord(key_id=key.key_id, source=self.kind), key

    def load(self, record: KeyRecord) -> KeyEncryptionKey:
        keyring = self._keyring()
        text = _asking("read the key", lambda: keyring.get_password(SERVICE, record.key_id))
        if text is None:
            raise KeyMissing(f"the keyring does not hold the key {record.key_id}", key_id=record.key_id)
        key = KeyEncryptionKey(decode_key(text, "the keyring"))
        if key.key_id != record.key_id:
            raise KeyMissing(f"the keyring holds another key in the place of {record.key_id}", key_id=record.key_id)
        return key

    def forget(self, record: KeyRecord) -> None:
        keyring = self._keyring()
        if _asking("look for the key", lambda: keyring.get_password(SERVICE, record.key_id)) is not None:
            _asking("delete the key", lambda: keyring.delete_password(SERVICE, record.key_id))

    def _keyring(self) -> Any:
        try:
            package = self._load_package()
        except ImportError as error:
            raise KeyringUnavailable("the keyring package is not installed") from error
        backend = _asking("start", package.get_keyring)
        for part in _parts(backend):
            name = type(part).__module__
            if name not in _TRUSTED:
                raise KeyringUnavailable(f"the keyring backend {name} does not protect what it keeps")
        return backend


def _parts(backend: Any) -> Iterable[Any]:
    """A chain asks several backends in turn: each of them has to be one we trust."""
    if type(backend).__module__ != _CHAIN:
        return (backend,)
    parts = tuple(backend.backends)
    if not parts:
        raise KeyringUnavailable("there is no keyring on this machine")
    return parts


def _asking(what: str, question: Callable[[], Any]) -> Any:
    """Backends raise errors of their own kinds, whose text may hold what was asked of them."""
    try:
        return question()
    except Exception as error:
        raise KeyringUnavailable(f"the keyring could not {what} ({type(error).__name__})") from None
