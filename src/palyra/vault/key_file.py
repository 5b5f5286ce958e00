"""Keys in the owner's file, and keys derived from a passphrase with scrypt.

The key file is outside the state directory, so that a copied state directory opens nothing. Of a passphrase only the
salt and the cost are stored, with the key's record. It comes from a terminal, a file or a descriptor, never from the
command line. A file or descriptor has one line, or two during a change: the new passphrase first, then the old one.
"""

import base64
import fcntl
import getpass
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec

from palyra.config.state_dir import replace_file
from palyra.secret import Secret
from palyra.vault.key_source import (
    KeyEncryptionKey,
    KeyMalformed,
    KeyMissing,
    KeyRecord,
    KeyUnsafe,
    NewKeyNeeded,
    PassphraseNeeded,
    PassphraseWeak,
    decode_key,
)
from palyra.vault.limits import (
    KEY_BYTES,
    MAX_KEY_FILE_BYTES,
    MAX_KEYS_IN_FILE,
    MAX_PASSPHRASE_BYTES,
    MAX_PASSPHRASES,
    MAX_SCRYPT_N,
    MAX_SCRYPT_P,
    MAX_SCRYPT_R,
    MIN_PASSPHRASE_CHARS,
    MIN_SCRYPT_N,
    SALT_BYTES,
    SCRYPT_N,
    SCRYPT_P,
    SCRYPT_R,
)

FILE_FORMAT: Final = "palyra.vault.key-file/1"
# A key file is replaced seldom; so many replacements during one read are an attack.
MAX_REPLACED: Final = 100


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    key: str


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    keys: Annotated[tuple[_Entry, ...], msgspec.Meta(max_length=MAX_KEYS_IN_FILE)]


class KeyFile:
    """File of keys. Several vaults and processes may share it: it is changed under a lock on its folder."""

    kind = "file"

    def __init__(self, path: Path, state_dir: Path) -> None:
        self._path = path
        self._state_dir = state_dir

    def create(self, known: Collection[str]) -> tuple[KeyRecord, KeyEncryptionKey]:
        self._refuse_state_dir()
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise KeyMissing(f"cannot make {self._path.parent}: {error.strerror}") from error
        key = KeyEncryptionKey(secrets.token_bytes(KEY_BYTES))
        with self._lock() as folder:
            keys = self._read()
            if len(keys) >= MAX_KEYS_IN_FILE:
                raise KeyMalformed(
                    f"{self._path} already holds {len(keys)} keys", hint="name another vault.key_file, or tidy this one"
                )
            self._write(folder, [*keys, key])
        return KeyRecord(key_id=key.key_id, source=self.kind), key

    def load(self, record: KeyRecord) -> KeyEncryptionKey:
        self._refuse_state_dir()
        for key in self._read():
            if key.key_id == record.key_id:
                return key
        raise KeyMissing(f"{self._path} does not hold the key {record.key_id}", key_id=record.key_id)

    def forget(self, record: KeyRecord) -> None:
        if not self._path.exists():
            return
        with self._lock() as folder:
            keys = self._read()
            kept = [key for key in keys if key.key_id != record.key_id]
            if len(kept) != len(keys):
                self._write(folder, kept)

    def _refuse_state_dir(self) -> None:
        """Refuse a file in the state directory, also by a link to that directory."""
        root = Path(os.path.realpath(self._state_dir))
        place = Path(os.path.realpath(self._path.parent)) / self._path.name
        if place.is_relative_to(root):
            raise KeyUnsafe(f"{self._path} is inside the state directory, with which it must not travel")

    @contextmanager
    def _lock(self) -> Iterator[int]:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status = os.fstat(folder)
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise KeyUnsafe(f"others may change what is in {self._path.parent}")
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(folder)

    def _read(self) -> list[KeyEncryptionKey]:
        raw = read_private(self._path, MAX_KEY_FILE_BYTES)
        if raw is None:
            return []
        try:
            document = msgspec.json.decode(raw, type=_Document)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # The decoder's message may quote the key.
            raise KeyMalformed(f"{self._path} is not a key file") from None
        if document.format != FILE_FORMAT:
            raise KeyMalformed(
                f"{self._path} has the format {document.format[:64]!r}; this version reads {FILE_FORMAT}"
            )
        keys = [KeyEncryptionKey(decode_key(entry.key, str(self._path))) for entry in document.keys]
        for key, entry in zip(keys, document.keys, strict=True):
            if key.key_id != entry.id:
                raise KeyMalformed(f"{self._path}: a key is not the one that its id names")
        return keys

    def _write(self, folder: int, keys: list[KeyEncryptionKey]) -> None:
        entries = tuple(_Entry(id=key.key_id, key=base64.b64encode(key.reveal()).decode()) for key in keys)
        content = msgspec.json.format(msgspec.json.encode(_Document(format=FILE_FORMAT, keys=entries))) + b"\n"
        try:
            replace_file(folder, self._path.name, content)
        except OSError as error:
            raise KeyMissing(f"cannot write {self._path}: {error.strerror}") from error


class SharedKeyFile(KeyFile):
    """File whose newest key serves every state directory of its user. People make many of those, to try things."""

    def create(self, known: Collection[str]) -> tuple[KeyRecord, KeyEncryptionKey]:
        self._refuse_state_dir()
        keys = self._read()
        if keys and keys[-1].key_id not in known:
            return KeyRecord(key_id=keys[-1].key_id, source=self.kind), keys[-1]
        if len(keys) >= MAX_KEYS_IN_FILE:
            raise NewKeyNeeded(
                f"{self._path} holds {len(keys)} keys, and other state directories may need each of them",
                hint="move the file away if no other state directory of this user is in use",
            )
        return super().create(known)

    def forget(self, record: KeyRecord) -> None:
        """Do nothing: another state directory may need the key."""


def read_private(path: Path, max_bytes: int) -> bytes | None:
    """Read a file that only this user can read or write; None if it does not exist."""
    for _ in range(MAX_REPLACED):
        try:
            return _read_private(path, max_bytes)
        except _Replaced:
            continue
    raise KeyUnsafe(f"{path} is replaced again and again while it is read")


class _Replaced(Exception):
    """Another file took the name after this one was opened."""


def _read_private(path: Path, max_bytes: int) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeyUnsafe(f"cannot open {path}: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        # Judged on the open descriptor: a name can be swapped between a check and an open.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KeyUnsafe(f"{path} is not a regular file")
        if status.st_uid != os.geteuid():
            raise KeyUnsafe(f"{path} belongs to another user")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise KeyUnsafe(f"{path} is open to others (mode {stat.S_IMODE(status.st_mode):04o})")
        if status.st_nlink == 0:
            raise _Replaced
        if status.st_nlink != 1:
            raise KeyUnsafe(f"{path} has a second name somewhere: another link leads to the same file")
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise KeyMalformed(f"{path} is larger than {max_bytes} bytes")
    return raw


_SALT: Final = re.compile(rf"[0-9a-f]{{{2 * SALT_BYTES}}}")
# Memory that scrypt needs beyond its table.
_SPARE_MEMORY: Final = 2**20
# The argument is the purpose of the passphrase: OPEN or NEW.
Ask = Callable[[str], Secret]
Passphrases = Callable[[str], list[Secret]]
OPEN: Final = "open"
NEW: Final = "new"


class ScryptParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    salt: str
    n: int = SCRYPT_N
    r: int = SCRYPT_R
    p: int = SCRYPT_P

    def check(self) -> None:
        """Bound the stored cost: an edited one must not take all memory, or make a guess cheap."""
        power_of_two = self.n > 0 and self.n & (self.n - 1) == 0
        if (
            not power_of_two
            or not MIN_SCRYPT_N <= self.n <= MAX_SCRYPT_N
            or not 1 <= self.r <= MAX_SCRYPT_R
            or not 1 <= self.p <= MAX_SCRYPT_P
            or not _SALT.fullmatch(self.salt)
        ):
            raise KeyMalformed("the stored scrypt parameters are out of bounds")


class PassphraseKeys:
    kind = "passphrase"

    def __init__(self, passphrases: Passphrases, *, cost: int = SCRYPT_N) -> None:
        self._passphrases = passphrases
        self._cost = cost

    def create(self, known: Collection[str]) -> tuple[KeyRecord, KeyEncryptionKey]:
        """Derive a key with a fresh salt, which makes a new key of an old passphrase too."""
        newest = self._passphrases(NEW)[0]
        if len(newest.reveal()) < MIN_PASSPHRASE_CHARS:
            raise PassphraseWeak(f"a passphrase has at least {MIN_PASSPHRASE_CHARS} characters")
        parameters = ScryptParameters(salt=secrets.token_hex(SALT_BYTES), n=self._cost)
        key = derive(newest, parameters)
        return KeyRecord(key_id=key.key_id, source=self.kind, parameters=msgspec.to_builtins(parameters)), key

    def load(self, record: KeyRecord) -> KeyEncryptionKey:
        try:
            parameters = msgspec.convert(record.parameters, ScryptParameters)
        except msgspec.ValidationError as error:
            raise KeyMalformed("the stored scrypt parameters cannot be read") from error
        for passphrase in self._passphrases(OPEN):
            key = derive(passphrase, parameters)
            if key.key_id == record.key_id:
                return key
        raise KeyMissing(
            "the passphrase does not open this vault",
            hint="use the passphrase that the vault was sealed with",
            key_id=record.key_id,
        )

    def forget(self, record: KeyRecord) -> None:
        """Do nothing: the passphrase is the person's."""


def derive(passphrase: Secret, parameters: ScryptParameters) -> KeyEncryptionKey:
    parameters.check()
    raw = hashlib.scrypt(
        passphrase.reveal().encode("utf-8", "surrogatepass"),
        salt=bytes.fromhex(parameters.salt),
        n=parameters.n,
        r=parameters.r,
        p=parameters.p,
        maxmem=128 * parameters.n * parameters.r + _SPARE_MEMORY * parameters.p * parameters.r,
        dklen=KEY_BYTES,
    )
    return KeyEncryptionKey(raw)


def from_file(path: Path) -> Passphrases:
    """Read the file each time: it is changed for a rotation."""

    def read(_question: str) -> list[Secret]:
        raw = read_private(path, MAX_PASSPHRASE_BYTES)
        if raw is None:
            raise PassphraseNeeded(f"{path} does not exist")
        return _lines(raw, str(path))

    return read


def from_descriptor(descriptor: int) -> Passphrases:
    """Read the descriptor once: a pipe has its content only the first time."""
    kept: list[Secret] = []

    def read(_question: str) -> list[Secret]:
        if not kept:
            try:
                with open(os.dup(descriptor), "rb") as file:
                    raw = file.read(MAX_PASSPHRASE_BYTES + 1)
            except OSError as error:
                raise PassphraseNeeded(f"descriptor {descriptor} cannot be read: {error.strerror}") from error
            kept.extend(_lines(raw[: MAX_PASSPHRASE_BYTES + 1], f"descriptor {descriptor}"))
        return kept

    return read


def from_terminal(ask: Ask) -> Passphrases:
    return lambda question: [ask(question)]


def from_nowhere(_question: str) -> list[Secret]:
    raise PassphraseNeeded("the vault's passphrase is not known to this process")


def _lines(raw: bytes, where: str) -> list[Secret]:
    if len(raw) > MAX_PASSPHRASE_BYTES:
        raise KeyMalformed(f"{where} is larger than {MAX_PASSPHRASE_BYTES} bytes")
    try:
        lines = [line for line in raw.decode("utf-8").replace("\r\n", "\n").split("\n") if line]
    except UnicodeDecodeError:
        raise KeyMalformed(f"{where} is not UTF-8") from None
    if not lines:
        raise PassphraseNeeded(f"{where} is empty")
    if len(lines) > MAX_PASSPHRASES:
        raise KeyMalformed(f"{where} has more than {MAX_PASSPHRASES} lines")
    return [Secret(line) for line in lines]


def ask_passphrase(question: str) -> Secret:
    """Ask on the terminal, without an echo; ask for a new passphrase twice."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        raise PassphraseNeeded("there is no terminal to ask for the vault's passphrase on") from None
    if question != NEW:
        return Secret(getpass.getpass("Passphrase of the vault: "))
    first = getpass.getpass("New passphrase of the vault: ")
    if first != getpass.getpass("Once more: "):
        raise PassphraseWeak("the two passphrases are not the same", hint="type it again")
    return Secret(first)
