"""Notes of which processes run, so that the next daemon can end what a killed one left.

The kernel ends a browser with its daemon in three ways; this is for the case that none of them worked. A note names a
process by its number, when it began and which start of the machine that was, so that none is ended for another.
"""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from palyra.browser import engine_limits as limits
from palyra.browser.process_look import start_time

_SUFFIX: Final = ".json"
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first process of a browser's pid namespace: when it is killed the kernel kills the others."""

    pid: int
    started: int
    boot: str


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon that was killed left. ``unending``: processes that were killed and did not go."""

    notes: int = 0
    ended: tuple[int, ...] = ()
    unending: tuple[int, ...] = ()


class ProcessNotes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._boot = _boot()

    def write(self, pid: int) -> Path | None:
        """Before Chromium begins. None where the process is gone already."""
        started = start_time(pid)
        if started is None:
            return None
        path = self._folder / f"{pid}-{started}{_SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(Note(pid, started, self._boot)))
        return path

    def remove(self, note: Path | None) -> None:
        if note is not None:
            note.unlink(missing_ok=True)

    def collect(self) -> Leftovers:
        """Ends what is noted and still runs, and removes the notes. Only for who alone has the state directory."""
        notes, ended, unending = 0, [], []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}"))[: limits.MAX_NOTES]:
            notes += 1
            note = _read(path)
            if note is not None and note.boot == self._boot:
                gone = _end(note)
                if gone is False:
                    # Its note stays, for the next start.
                    unending.append(note.pid)
                    continue
                if gone:
                    ended.append(note.pid)
            with suppress(FileNotFoundError):
                path.unlink()
        return Leftovers(notes=notes, ended=tuple(ended), unending=tuple(unending))


def _end(note: Note) -> bool | None:
    """True: it ran and is gone. None: it did not run any more."""
    try:
        descriptor = os.pidfd_open(note.pid)
    except OSError:
        return None
    try:
        # Looked at after the descriptor was opened: from now on the number is this process's.
        if start_time(note.pid) != note.started:
            return None
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return bool(waiting.poll(limits.END_SECONDS * 1000))
    finally:
        os.close(descriptor)


def _read(path: Path) -> Note | None:
    """None for what is no note of ours: a torn write, a foreign file."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(limits.MAX_NOTE_BYTES), type=Note)
    except (OSError, msgspec.MsgspecError):
        return None


def _boot() -> str:
    return Path(_BOOT_ID).read_text("ascii").strip()
