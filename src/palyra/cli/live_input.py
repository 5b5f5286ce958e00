"""Standard input of ``palyra run``: what is there already, and a pipe for what comes while the program runs.

The program never gets this process's own standard input: a file could be opened again through its descriptor for
writing, a directory leads to its parent, a terminal can be written to. It gets a pipe, which a thread fills as the
program takes from it.
"""

import os
import select
import threading
from typing import Final

from palyra.sandbox.guard_limits import MAX_STDIN_BYTES

_CHUNK_BYTES: Final = 64 * 1024
# The thread is told to end and does so at once, unless somebody else took what was there to read.
_JOIN_SECONDS: Final = 1.0


def read_ready(source: int, most: int = MAX_STDIN_BYTES) -> tuple[bytes, bool]:
    """What can be read without waiting, and whether there is or may be more of it. Never waits."""
    content = b""
    while len(content) <= most:
        if not _ready(source):
            return content, True
        part = os.read(source, _CHUNK_BYTES)
        if not part:
            return content, False
        content += part
    return content, True


def _ready(source: int) -> bool:
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(0))


class LiveInput:
    """``reader`` is for the program. ``close`` ends the thread, whatever the source does."""

    def __init__(self, source: int, first: bytes = b"") -> None:
        self.reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)
        self._stopped, self._stop = os.pipe2(os.O_CLOEXEC)
        self._source = source
        self._first = first
        self._thread = threading.Thread(target=self._pump, name="live input", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self._stop)
        os.close(self.reader)
        self._thread.join(_JOIN_SECONDS)

    def _pump(self) -> None:
        try:
            content: bytes | None = self._first
            while content is not None and self._pass_on(content):
                content = self._next()
        except OSError:
            # The program is gone, or the source is: either way there is nothing more to pass on.
            return
        finally:
            os.close(self._writer)
            os.close(self._stopped)

    def _next(self) -> bytes | None:
        if not self._wait(self._source, select.POLLIN):
            return None
        return os.read(self._source, _CHUNK_BYTES) or None

    def _pass_on(self, content: bytes) -> bool:
        view = memoryview(content)
        while view:
            if not self._wait(self._writer, select.POLLOUT):
                return False
            try:
                view = view[os.write(self._writer, view) :]
            except BlockingIOError:
                continue
        return True

    def _wait(self, descriptor: int, event: int) -> bool:
        """False when it is time to stop."""
        poll = select.poll()
        poll.register(descriptor, event)
        poll.register(self._stopped, 0)
        return all(ready != self._stopped for ready, _ in poll.poll())
