"""A device's own folder: its pairing, and what its status command shows.

Everything is written whole, durably and for this user alone. The pairing keeps its last good copy beside it.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from palyra.nodes.device import limits
from palyra.nodes.device.device_record import DeviceRecord, read_record, write_record
from palyra.nodes.device.errors import DeviceFileBad, HostRunning

DEVICE_FILE: Final = "{kind}-device.v1.json"
STATUS_FILE: Final = "{kind}-status.v1.json"
LOCK_FILE: Final = "{kind}-host.lock"
BACKUP: Final = ".bak"


class PrivateFolder(Protocol):
    """A folder closed to everybody else, whose files are written atomically."""

    @property
    def root(self) -> Path: ...

    def write_atomic(self, name: str, content: bytes) -> Path: ...


class PairingFolder:
    """``kind`` names the files. ``told`` are things a person should know about what was found."""

    def __init__(self, folder: PrivateFolder, kind: str) -> None:
        self.folder = folder
        self._device_file = DEVICE_FILE.format(kind=kind)
        self._backup_file = self._device_file + BACKUP
        self._status_file = STATUS_FILE.format(kind=kind)
        self._lock_file = LOCK_FILE.format(kind=kind)
        self._lock: int | None = None
        self.told: list[str] = []

    def lock(self) -> None:
        """One host at a time; the lock goes with the process."""
        descriptor = os.open(
            self.folder.root / self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise HostRunning("another process already runs on this folder") from None
        self._lock = descriptor

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def is_locked(self) -> bool:
        """Whether a host runs on this folder now."""
        try:
            self.lock()
        except HostRunning:
            return True
        self.unlock()
        return False

    def load(self) -> DeviceRecord | None:
        """The pairing, or the last good copy of it where the file is damaged; None where there never was one."""
        raw = self.read(self._device_file, limits.MAX_DEVICE_FILE_BYTES)
        backup = self.read(self._backup_file, limits.MAX_DEVICE_FILE_BYTES)
        if raw is None and backup is None:
            return None
        try:
            if raw is None:
                raise DeviceFileBad("the device's file is gone")
            return read_record(raw)
        except DeviceFileBad as error:
            if backup is None:
                raise
            found = read_record(backup)
            self.told.append(f"{error.message}: the last good copy is used")
            self.folder.write_atomic(self._device_file, backup)
            return found

    def save(self, record: DeviceRecord) -> None:
        """The new file first, then its copy: whichever moment the power goes, one of them is whole and newest or the
        one before."""
        content = write_record(record)
        self.folder.write_atomic(self._device_file, content)
        self.folder.write_atomic(self._backup_file, content)

    def write_status(self, status: dict[str, Any]) -> None:
        self.folder.write_atomic(self._status_file, msgspec.json.encode(status))

    def read_status(self) -> dict[str, Any]:
        raw = self.read(self._status_file, limits.MAX_DEVICE_FILE_BYTES)
        try:
            status = msgspec.json.decode(raw or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return {}
        return status if isinstance(status, dict) else {}

    def forget(self) -> None:
        """Everything of the pairing goes, the key first."""
        for name in (self._device_file, self._backup_file, self._status_file):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.folder.root / name)

    def read(self, name: str, most: int) -> bytes | None:
        try:
            descriptor = os.open(self.folder.root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DeviceFileBad(f"cannot read {name}: {error.strerror}") from error
        with open(descriptor, "rb") as file:
            return file.read(most + 1)[:most]
