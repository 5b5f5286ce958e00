"""Key file of the owner, outside the state directory, so that a copied state directory opens nothing."""

import base64
import fcntl
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec

from palyra.config.state_dir import replace_file
from palyra.vault.key_source import KeyEncryptionKey, KeyMalformed, KeyMissing, KeyRecord, KeyUnsafe, decode_key
from palyra.vault.limits import KEY_BYTES, MAX_KEY_FILE_BYTES, MAX_KEYS_IN_FILE

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
