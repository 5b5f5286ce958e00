"""Key-encryption keys, their sources (environment and keyring here), and the vault's errors.

A key is never in the database. The database has its id, the kind of its source, and what the source needs to find or
derive it again, such as the salt of a passphrase.
"""

import base64
import binascii
import hashlib
import importlib
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol

import msgspec

from palyra.errors import Denied, InvalidInput, LimitExceeded, NeedsApproval, Tampered, Unavailable
from palyra.secret import REDACTED
from palyra.vault.limits import KEY_BYTES, MAX_SECRETS, MAX_VALUE_BYTES


class VaultTampered(Tampered):
    """The database was changed: a changed bit, a record from elsewhere, or one from an older copy."""

    code = "vault.tampered"
    hint = "somebody changed the database; compare with `palyra journal verify` and a backup, then put the secret again"


class UnknownFormat(Unavailable):
    code = "vault.unknown_format"
    hint = "the record was written by a newer Palyra: use that one"


class NoSuchSecret(InvalidInput):
    code = "vault.unknown_secret"
    hint = "`palyra vault list` shows the secrets there are"
    http_status = 404


class NoSuchVersion(InvalidInput):
    code = "vault.unknown_version"
    hint = "`palyra vault list` shows the versions that are kept"
    http_status = 404


class BadValue(InvalidInput):
    code = "vault.bad_value"
    hint = "a value is text of at least one character"


class ValueTooLarge(LimitExceeded):
    code = "vault.value_too_large"
    hint = f"a value has at most {MAX_VALUE_BYTES} bytes of UTF-8"
    http_status = 413


class TooManySecrets(LimitExceeded):
    code = "vault.too_many_secrets"
    hint = f"delete some: a vault holds {MAX_SECRETS}"


class KeyMissing(Unavailable):
    """The source does not have the key-encryption key, or has another."""

    code = "vault.key_missing"
    hint = "bring back the key that the message names; without it nobody can read what it sealed"


class KeyUnsafe(Denied):
    code = "vault.key_unsafe"
    hint = "keep the key in a file of your own with mode 0600, outside the state directory and without links to it"


class KeyMalformed(InvalidInput):
    code = "vault.key_malformed"
    hint = "a key is 32 random bytes in base 64, such as `openssl rand -base64 32` prints"


class NewKeyNeeded(InvalidInput):
    code = "vault.new_key_needed"
    hint = "give the new key first and the old one after it, then rotate again"


class PassphraseNeeded(Unavailable):
    code = "vault.passphrase_needed"
    hint = "set vault.passphrase_file or vault.passphrase_fd, or use the command at a terminal while no daemon runs"


class PassphraseWeak(InvalidInput):
    code = "vault.passphrase_weak"
    hint = "use several random words"


class KeyringUnavailable(Unavailable):
    code = "vault.keyring_unavailable"
    hint = "install palyra[keyring] and unlock a desktop keyring, or choose another vault.key_source"


class UseDenied(Denied):
    code = "vault.use_denied"
    hint = "a policy of yours may permit vault.use for this principal and secret"


class ScopeDenied(Denied):
    """The secret belongs to somebody else; no policy changes that."""

    code = "vault.scope_denied"
    hint = "put the secret in a scope that the one who needs it may use"


class UseNeedsApproval(NeedsApproval):
    code = "vault.use_needs_approval"
    hint = "have a person approve a call that names this secret, or permit vault.use by a policy"


class NotConfirmed(Denied):
    code = "vault.not_confirmed"
    hint = "a secret is shown only to a person at a terminal who types its name"


KEY_ID_PREFIX: Final = "kek:"
_ID_DOMAIN: Final = b"palyra.vault.key-id/1\0"
_ID_CHARS: Final = 32


class KeyEncryptionKey:
    """32 bytes that wrap data keys. Its id is a digest, which reveals nothing of the key."""

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
    """Record of a key in the database. ``parameters`` are public: without the key's own secret they are useless."""

    key_id: str
    source: str
    parameters: dict[str, Any] = {}


class KeySource(Protocol):
    """Source of keys. Its methods may block: they run on a thread."""

    @property
    def kind(self) -> str:
        """Return the word of the setting ``vault.key_source``."""
        ...

    def create(self, known: Collection[str]) -> tuple[KeyRecord, KeyEncryptionKey]:
        """Make a key that is not in ``known``, or take it from a person's input. Keep it before returning."""
        ...

    def load(self, record: KeyRecord) -> KeyEncryptionKey:
        """Return exactly the key of the record. Raise ``KeyMissing`` if it is absent, or if another is in its place."""
        ...

    def forget(self, record: KeyRecord) -> None:
        """Destroy a key that seals nothing any more, if the source can."""
        ...


def decode_key(text: str, where: str) -> bytes:
    """Decode 32 bytes of base 64, in the standard or the URL-safe alphabet. The error never shows the text."""
    try:
        key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise KeyMalformed(f"{where} does not hold a key in base 64") from None
    if len(key) != KEY_BYTES:
        raise KeyMalformed(f"the key in {where} has {len(key)} bytes instead of {KEY_BYTES}")
    return key


VARIABLE: Final = "PALYRA_VAULT_KEY"
_MAX_KEYS: Final = 2


class EnvironmentKeys:
    """Keys from the environment, for containers whose platform passes secrets by it.

    The variable holds one key, or for a rotation the new one and the old one with a comma between. It is the weakest
    source: a process that can read this environment has the key.
    """

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
        """Do nothing: the owner changes the variable."""

    def _keys(self) -> list[KeyEncryptionKey]:
        raw = self._environ.get(VARIABLE, "")
        if not raw.strip():
            raise KeyMissing(f"{VARIABLE} is not set", hint=f"set {VARIABLE} to 32 random bytes in base 64")
        parts = raw.split(",")
        if len(parts) > _MAX_KEYS:
            raise KeyMalformed(f"{VARIABLE} holds more than {_MAX_KEYS} keys")
        return [KeyEncryptionKey(decode_key(part.strip(), VARIABLE)) for part in parts]


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
    """Keys in the operating system's keyring, by the optional package ``keyring``.

    Backends that keep nothing, or keep it in plain files, are refused.
    """

    kind = "keyring"

    def __init__(self, load_package: Callable[[], Any] = lambda: importlib.import_module("keyring")) -> None:
        self._load_package = load_package

    def create(self, known: Collection[str]) -> tuple[KeyRecord, KeyEncryptionKey]:
        keyring = self._keyring()
        key = KeyEncryptionKey(secrets.token_bytes(KEY_BYTES))
        text = base64.b64encode(key.reveal()).decode()
        _call_keyring("store the key", lambda: keyring.set_password(SERVICE, key.key_id, text))
        if _call_keyring("read the key back", lambda: keyring.get_password(SERVICE, key.key_id)) != text:
            raise KeyringUnavailable("the keyring did not keep the key")
        return KeyRecord(key_id=key.key_id, source=self.kind), key

    def load(self, record: KeyRecord) -> KeyEncryptionKey:
        keyring = self._keyring()
        text = _call_keyring("read the key", lambda: keyring.get_password(SERVICE, record.key_id))
        if text is None:
            raise KeyMissing(f"the keyring does not hold the key {record.key_id}", key_id=record.key_id)
        key = KeyEncryptionKey(decode_key(text, "the keyring"))
        if key.key_id != record.key_id:
            raise KeyMissing(f"the keyring holds another key in the place of {record.key_id}", key_id=record.key_id)
        return key

    def forget(self, record: KeyRecord) -> None:
        keyring = self._keyring()
        if _call_keyring("look for the key", lambda: keyring.get_password(SERVICE, record.key_id)) is not None:
            _call_keyring("delete the key", lambda: keyring.delete_password(SERVICE, record.key_id))

    def _keyring(self) -> Any:
        try:
            package = self._load_package()
        except ImportError as error:
            raise KeyringUnavailable("the keyring package is not installed") from error
        backend = _call_keyring("start", package.get_keyring)
        for part in _parts(backend):
            name = type(part).__module__
            if name not in _TRUSTED:
                raise KeyringUnavailable(f"the keyring backend {name} does not protect what it keeps")
        return backend


def _parts(backend: Any) -> Iterable[Any]:
    """Return the backends of a chain, each of which must be trusted."""
    if type(backend).__module__ != _CHAIN:
        return (backend,)
    parts = tuple(backend.backends)
    if not parts:
        raise KeyringUnavailable("there is no keyring on this machine")
    return parts


def _call_keyring(what: str, question: Callable[[], Any]) -> Any:
    """Call the keyring. Hide the text of its errors, which may hold the key."""
    try:
        return question()
    except Exception as error:
        raise KeyringUnavailable(f"the keyring could not {what} ({type(error).__name__})") from None
