"""Writes log lines without ever waiting for who reads them.

A daemon logs on its event loop, and agents and servers have a say in how much. A pipe that nobody empties, or a
terminal that was stopped, must not stop the daemon: what does not fit at once is kept for a thread to write, and beyond
some hundred lines it is left out and counted.
"""

import contextlib
import logging
import os
import select
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

# Kept for a reader that is slow: some hundred lines with their tracebacks.
MAX_KEPT_BYTES: Final = 256 * 1024
# What is kept has so long to be written when the daemon ends.
CLOSE_SECONDS: Final = 1.0
_AT_ONCE: Final = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class LogWriter(logging.Handler):
    """To a descriptor that other programs have too: its flags stay as they are."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._opened = contextlib.ExitStack()
        self._descriptor = os.dup(descriptor)
        self._opened.callback(os.close, self._descriptor)
        self._at_once = _without_waiting(self._descriptor, self._opened)
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._left_out = 0
        # There as long as something is kept.
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
        except Exception:
            self.handleError(record)
        else:
            self._put(line)

    def say(self, text: str) -> None:
        """A line for people, as it is."""
        self._put(f"{text}\n".encode("utf-8", "backslashreplace"))

    def _put(self, line: bytes) -> None:
        with self._changed:
            if self._thread is None:
                try:
                    line = line[self._at_once(line) :]
                except BlockingIOError:
                    pass
                except OSError:
                    # Nobody will read it, or the disk is full: a log is no reason to fail.
                    return
            if line:
                self._keep(line)

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _keep(self, line: bytes) -> None:
        if self._left_out or self._kept_bytes + len(line) > MAX_KEPT_BYTES:
            # And the next too, until that is told: what is missing is missing in one place.
            self._left_out += 1
            return
        self._kept.append(line)
        self._kept_bytes += len(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._catch_up, name="palyra-log", daemon=True)
            self._thread.start()

    def _catch_up(self) -> None:
        while (line := self._next()) is not None:
            with contextlib.suppress(OSError):
                _write_all(self._descriptor, line)

    def _next(self) -> bytes | None:
        with self._changed:
            if not self._kept and self._left_out:
                self._kept.append(self._line(_left_out(self._left_out)))
                self._kept_bytes = len(self._kept[0])
                self._left_out = 0
            if self._kept:
                self._kept_bytes -= len(self._kept[0])
                return self._kept.popleft()
            self._thread = None
            self._changed.notify_all()
            return None

    def close(self) -> None:
        """A thread that still waits for a reader afterwards ends with the process."""
        with self._changed:
            if self._changed.wait_for(lambda: self._thread is None, CLOSE_SECONDS):
                self._at_once = len
                self._opened.close()
        super().close()


def _without_waiting(descriptor: int, opened: contextlib.ExitStack) -> Callable[[bytes], int]:
    """Writes as much as there is room for; raises BlockingIOError where there is none."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return partial(os.write, descriptor)
    if stat.S_ISSOCK(mode):
        ours = opened.enter_context(socket.socket(fileno=os.dup(descriptor)))
        return lambda line: ours.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    try:
        # Opened once more, a pipe or a terminal has flags that are ours alone.
        own = os.open(f"/proc/self/fd/{descriptor}", _AT_ONCE)
    except OSError:
        return _leave_to_thread
    opened.callback(os.close, own)
    return partial(os.write, own)


def _leave_to_thread(line: bytes) -> int:
    raise BlockingIOError


def _write_all(descriptor: int, line: bytes) -> None:
    """Waits for as long as it takes, also where another program made the descriptor one that does not."""
    writable = select.poll()
    writable.register(descriptor, select.POLLOUT)
    while line:
        writable.poll()
        with contextlib.suppress(BlockingIOError):
            line = line[os.write(descriptor, line) :]


def _left_out(count: int) -> logging.LogRecord:
    said = "%d lines were left out here: nobody read this log"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (count,), None)
