"""Keys derived from a passphrase with scrypt. Only the salt and the cost are stored, with the key's record.

The passphrase comes from a terminal, a file or a descriptor, never from the command line. A file or descriptor has one
line, or two during a change of the passphrase: the new one first, then the old one.
"""

import getpass
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec

from palyra.secret import Secret
from palyra.vault.key_file import read_private
from palyra.vault.key_source import (
    KeyEncryptionKey,
    KeyMalformed,
    KeyMissing,
    KeyRecord,
    PassphraseNeeded,
    PassphraseWeak,
)
from palyra.vault.limits import (
    KEY_BYTES,
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
