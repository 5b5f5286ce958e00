"""The device's own folder: its pairing, notes of requests, and what `palyra node status` shows.

Everything is written whole, durably and for this user alone. The pairing keeps its last good copy beside it; a note is
a file of its own, so that noting one request does not rewrite the others.
"""

import contextlib
import fcntl
import os
import re
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from palyra.nodes.host import limits
from palyra.nodes.host.device_record import DeviceRecord, read_record, write_record
from palyra.nodes.host.errors import DeviceFileBad, HostRunning
from palyra.nodes.host.messages import Note, NoteState

DEVICE_FILE: Final = "node-device.v1.json"
BACKUP_FILE: Final = "node-device.v1.json.bak"
STATUS_FILE: Final = "node-status.v1.json"
LOCK_FILE: Final = "node-host.lock"
NOTES: Final = "node-requests"
_NOTE: Final = re.compile(r"([A-Za-z0-9-]{1,64})\.json")


class PrivateFolder(Protocol):
    """A folder closed to everybody else, whose files are written atomically."""

    @property
    def root(self) -> Path: ...

    def write_atomic(self, name: str, content: bytes) -> Path: ...


class DeviceFolder:
    """``told`` are things a person should know about what was found."""

    def __init__(self, folder: PrivateFolder) -> None:
        self._folder = folder
        self._lock: int | None = None
        self._settled: dict[str, None] = {}
        self.told: list[str] = []

    def lock(self) -> None:
        """One host at a time; the lock goes with the process."""
        descriptor = os.open(
            self._folder.root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise HostRunning("a node host already runs on this folder") from None
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
        raw = self._read(DEVICE_FILE, limits.MAX_DEVICE_FILE_BYTES)
        backup = self._read(BACKUP_FILE, limits.MAX_DEVICE_FILE_BYTES)
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
            self._folder.write_atomic(DEVICE_FILE, backup)
            return found

    def save(self, record: DeviceRecord) -> None:
        """The new file first, then its copy: whichever moment the power goes, one of them is whole and newest or the
        one before."""
        content = write_record(record)
        self._folder.write_atomic(DEVICE_FILE, content)
        self._folder.write_atomic(BACKUP_FILE, content)

    def notes(self) -> list[Note]:
        found: list[Note] = []
        for name in self._note_names():
            path = f"{NOTES}/{name}"
            raw = self._read(path, limits.MAX_NOTE_FILE_BYTES)
            try:
                note = msgspec.json.decode(raw or b"", type=Note)
                if name != f"{note.request_id}.json":
                    raise ValueError("a note under another name")
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
                # A note that cannot be read may be of work that had an effect: it is kept from being done again.
                request_id = name.removesuffix(".json")
                self.told.append(f"the note of request {request_id} cannot be read: it will not be done again")
                note = Note(request_id=request_id, capability="", state=NoteState.SETTLED)
            found.append(note)
            if note.state is NoteState.SETTLED:
                self._settled[note.request_id] = None
        self._prune()
        return found

    def write_note(self, note: Note) -> None:
        self._folder.write_atomic(f"{NOTES}/{note.request_id}.json", msgspec.json.encode(note))
        if note.state is NoteState.SETTLED:
            self._settled[note.request_id] = None
            self._prune()

    def forget_note(self, request_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._folder.root / NOTES / f"{request_id}.json")

    def write_status(self, status: dict[str, Any]) -> None:
        self._folder.write_atomic(STATUS_FILE, msgspec.json.encode(status))

    def read_status(self) -> dict[str, Any]:
        raw = self._read(STATUS_FILE, limits.MAX_DEVICE_FILE_BYTES)
        try:
            status = msgspec.json.decode(raw or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return {}
        return status if isinstance(status, dict) else {}

    def forget(self) -> None:
        """Everything of the pairing goes, the key first."""
        for name in (DEVICE_FILE, BACKUP_FILE, STATUS_FILE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._folder.root / name)
        for name in self._note_names():
            self.forget_note(name.removesuffix(".json"))

    def _note_names(self) -> list[str]:
        try:
            names = os.listdir(self._folder.root / NOTES)
        except FileNotFoundError:
            return []
        for name in names:
            if not _NOTE.fullmatch(name):
                # What a power cut left of a note that was being written.
                with contextlib.suppress(OSError):
                    os.unlink(self._folder.root / NOTES / name)
        return sorted(name for name in names if _NOTE.fullmatch(name))

    def _prune(self) -> None:
        while len(self._settled) > limits.MAX_REMEMBERED:
            oldest = next(iter(self._settled))
            del self._settled[oldest]
            self.forget_note(oldest)

    def _read(self, name: str, most: int) -> bytes | None:
        try:
            descriptor = os.open(self._folder.root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DeviceFileBad(f"cannot read {name}: {error.strerror}") from error
        with open(descriptor, "rb") as file:
            return file.read(most + 1)[:most]
