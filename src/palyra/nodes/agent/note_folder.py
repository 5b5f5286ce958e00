"""The folder of a node host: its pairing, and a note of each request.

Each note is a file, so that a write for one request does not rewrite the others.
"""

import contextlib
import os
import re
from typing import Final

import msgspec

from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import PairingFolder
from palyra.nodes import limits
from palyra.nodes.agent.messages import Note, NoteState

KIND: Final = "node"
REQUEST_NOTES: Final = "node-requests"
_REQUEST_NOTE: Final = re.compile(r"([A-Za-z0-9-]{1,64})\.json")


class DeviceFolder(PairingFolder):
    def __init__(self, folder: StateDir) -> None:
        super().__init__(folder, KIND)
        self._settled: dict[str, None] = {}

    def notes(self, *, sweep: bool = True) -> list[Note]:
        """Read all notes.

        ``sweep`` also deletes incomplete files, so only a starting host may use it.
        """
        found: list[Note] = []
        for name in self._note_names(sweep=sweep):
            path = f"{REQUEST_NOTES}/{name}"
            raw = self.read(path, limits.MAX_NOTE_FILE_BYTES)
            try:
                note = msgspec.json.decode(raw or b"", type=Note)
                if name != f"{note.request_id}.json":
                    raise ValueError("a note under another name")
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
                # The work of an unreadable note may have had an effect, so it is not done again.
                request_id = name.removesuffix(".json")
                self.warnings.append(f"the note of request {request_id} cannot be read: it will not be done again")
                note = Note(request_id=request_id, capability="", state=NoteState.SETTLED)
            found.append(note)
            if note.state is NoteState.SETTLED:
                self._settled[note.request_id] = None
        self._prune()
        return found

    def write_note(self, note: Note) -> None:
        self.folder.write_atomic(f"{REQUEST_NOTES}/{note.request_id}.json", msgspec.json.encode(note))
        if note.state is NoteState.SETTLED:
            self._settled[note.request_id] = None
            self._prune()

    def forget_note(self, request_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.folder.root / REQUEST_NOTES / f"{request_id}.json")

    def forget(self) -> None:
        super().forget()
        for name in self._note_names():
            self.forget_note(name.removesuffix(".json"))

    def _note_names(self, *, sweep: bool = True) -> list[str]:
        try:
            names = os.listdir(self.folder.root / REQUEST_NOTES)
        except FileNotFoundError:
            return []
        for name in names if sweep else ():
            if not _REQUEST_NOTE.fullmatch(name):
                # A power cut interrupted the write of this note.
                with contextlib.suppress(OSError):
                    os.unlink(self.folder.root / REQUEST_NOTES / name)
        return sorted(name for name in names if _REQUEST_NOTE.fullmatch(name))

    def _prune(self) -> None:
        while len(self._settled) > limits.MAX_REMEMBERED:
            oldest = next(iter(self._settled))
            del self._settled[oldest]
            self.forget_note(oldest)
