"""Notes of open leases on disk, one file each. A note is durable before its lease is begun or its end reported."""

import contextlib
import os
import re
from typing import Final

import msgspec

from palyra.config.state_dir import StateDir
from palyra.fleet.agent.lease import LeaseNote, NoteBad
from palyra.fleet.limits import MAX_NOTE_BYTES

LEASE_NOTES: Final = "leases"
_LEASE_NOTE: Final = re.compile(r"([0-9A-Z]{26})\.json")


class NoteFolder:
    """Blocking. ``unreadable`` are the ids of damaged notes, whose ends cannot be reported."""

    def __init__(self, folder: StateDir) -> None:
        self._folder = folder
        self.unreadable: list[str] = []

    def write(self, note: LeaseNote) -> None:
        self._folder.write_atomic(f"{LEASE_NOTES}/{note.lease_id}.json", msgspec.json.encode(note))

    def read(self, lease_id: str) -> LeaseNote:
        path = self._folder.root / LEASE_NOTES / f"{lease_id}.json"
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                raw = file.read(MAX_NOTE_BYTES + 1)
            note = msgspec.json.decode(raw, type=LeaseNote)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NoteBad(f"the note of lease {lease_id} cannot be read") from error
        if note.lease_id != lease_id:
            raise NoteBad(f"the note of lease {lease_id} names another lease")
        return note

    def forget(self, lease_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._folder.root / LEASE_NOTES / f"{lease_id}.json")

    def names(self) -> list[str]:
        """Return the ids of the leases that have a note."""
        try:
            found = os.listdir(self._folder.root / LEASE_NOTES)
        except FileNotFoundError:
            return []
        return sorted(match[1] for match in map(_LEASE_NOTE.fullmatch, found) if match)

    def load(self) -> list[LeaseNote]:
        """Return all notes, oldest first. Set unreadable ones aside as ``.bad`` files."""
        found: list[LeaseNote] = []
        folder = self._folder.root / LEASE_NOTES
        for lease_id in self.names():
            try:
                found.append(self.read(lease_id))
            except NoteBad:
                self.unreadable.append(lease_id)
                os.replace(folder / f"{lease_id}.json", folder / f"{lease_id}.json.bad")
        # Half a note from a power cut goes.
        for path in folder.glob("*") if folder.is_dir() else ():
            if not _LEASE_NOTE.fullmatch(path.name) and path.suffix != ".bad":
                with contextlib.suppress(OSError):
                    path.unlink()
        return found
