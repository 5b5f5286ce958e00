"""Reports that the daemon has not acknowledged, on disk: one file, a line for each report and each acknowledgement.

A line is written before anybody could know of the violation, so the end of the process loses none; ``sync`` makes it
last through a power cut, and nothing is sent before that. Half a line at the end is what a power cut left: dropped.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from palyra.errors import Unavailable
from palyra.workers.egress import limits
from palyra.workers.egress.violation import Violation

log = logging.getLogger("palyra.egress")
SPOOL_FILE: Final = "violations.v1.jsonl"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class SpoolUnusable(Unavailable):
    code = "worker_egress.spool_unusable"
    hint = "check the permissions and the free space of the proxy's own folder"


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """``sequence`` grows, over restarts too."""

    sequence: int
    violation: Violation


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    sequence: int
    violation: Violation | None = None


class ViolationSpool:
    """``now_ms`` begins the numbers of a new file: they are never lower than those of an older one."""

    def __init__(self, folder: Path, now_ms: Callable[[], int]) -> None:
        self._path = folder / SPOOL_FILE
        self._waiting: dict[int, Spooled] = {}
        self._now_ms = now_ms
        self._last = 0
        try:
            self._descriptor = os.open(self._path, _FLAGS, 0o600)
            self._read()
        except OSError as error:
            raise SpoolUnusable(f"cannot use {self._path}: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> list[Spooled]:
        """Oldest first."""
        return list(self._waiting.values())

    def append(self, violation: Violation, *, must: bool) -> Spooled | None:
        """Takes one report, for which a full spool has room only if it ``must``. It does not wait for the disk.

        A report that cannot be written is still kept, and told as long as the process lives.
        """
        if len(self._waiting) >= limits.MAX_SPOOLED and not must:
            return None
        self._last = max(self._last + 1, self._now_ms())
        spooled = Spooled(sequence=self._last, violation=violation)
        self._waiting[spooled.sequence] = spooled
        self._write(_Line(sequence=spooled.sequence, violation=violation))
        return spooled

    def sync(self) -> None:
        """For a thread."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            log.error("the spool of violations cannot be synced: %s", error.strerror)

    def acknowledge(self, sequence: int) -> bool:
        """Whether it was one that waited."""
        if self._waiting.pop(sequence, None) is None:
            return False
        try:
            if not self._waiting:
                os.ftruncate(self._descriptor, 0)
            elif os.fstat(self._descriptor).st_size > limits.SPOOL_REWRITTEN_BYTES:
                self._rewrite()
            else:
                self._write(_Line(sequence=sequence))
        except OSError as error:
            # It is told twice after a restart, which costs nothing.
            log.warning("an acknowledged violation stays in the spool: %s", error.strerror)
        return True

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, line: _Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        try:
            if os.write(self._descriptor, data) != len(data):
                log.error("a violation was written in part: the disk is full")
        except OSError as error:
            log.error("a violation cannot be kept on disk: %s", error.strerror)

    def _read(self) -> None:
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            content = file.read(limits.MAX_SPOOL_BYTES)
        torn = bool(content) and not content.endswith(b"\n")
        for raw in content.split(b"\n"):
            try:
                line = msgspec.json.decode(raw, type=_Line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            self._last = max(self._last, line.sequence)
            if line.violation is None:
                self._waiting.pop(line.sequence, None)
            else:
                self._waiting[line.sequence] = Spooled(sequence=line.sequence, violation=line.violation)
        if torn:
            # The next line must not become the rest of this one.
            self._rewrite()

    def _rewrite(self) -> None:
        """Whole or not at all: the new file takes the old one's name when it is on disk."""
        beside = self._path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        fresh = os.open(beside, _FLAGS | os.O_EXCL, 0o600)
        try:
            with open(os.dup(fresh), "wb") as file:
                for each in self._waiting.values():
                    file.write(msgspec.json.encode(_Line(sequence=each.sequence, violation=each.violation)) + b"\n")
            os.fdatasync(fresh)
            os.replace(beside, self._path)
        except OSError:
            os.close(fresh)
            raise
        old, self._descriptor = self._descriptor, fresh
        os.close(old)
