"""What a program prints, read as it comes and counted against one quota for both streams.

The pipes are read on the event loop without threads, so nothing outlives the call. Beyond the quota nothing more is
kept: the part up to it stays, the stream is marked truncated, and ``exceeded`` is set so that the tree is ended. Less
than the quota may be kept, where somebody sees all of it as it comes.

The writing ends stay open here too. So the end of a program, which closes its own, wakes nobody to read nothing: that
would compete with the end of its sandbox, which somebody else tells of. What is left in the pipes is read then.
"""

import asyncio
import contextlib
import fcntl
import os
import sys
import termios
from collections.abc import Callable
from enum import StrEnum
from typing import Final

# One read: the size of a pipe's buffer.
CAPTURE_CHUNK_BYTES: Final = 64 * 1024


class StreamName(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


Sink = Callable[[StreamName, bytes], None]


class _Stream:
    def __init__(self, name: StreamName) -> None:
        self.name = name
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self.kept = bytearray()
        self.truncated = False
        self.open = True


class OutputCapture:
    """Made on the loop that reads, from ``listen`` on. ``sink`` sees every chunk up to the quota as it comes, for logs
    and terminals; ``keep`` is how much of it is kept, where that is less."""

    def __init__(self, max_bytes: int, sink: Sink | None = None, *, keep: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = max_bytes
        self._room = max_bytes if keep is None else keep
        self._sink = sink
        self._streams = {name: _Stream(name) for name in StreamName}
        self.exceeded = asyncio.Event()
        self._when_exceeded: Callable[[], None] | None = None

    def writers(self) -> tuple[int, int]:
        """The ends to hand to the program."""
        return self._streams[StreamName.STDOUT].writer, self._streams[StreamName.STDERR].writer

    def listen(self) -> None:
        """Once the program was given them, so that it does not wait for this."""
        for stream in self._streams.values():
            self._loop.add_reader(stream.reader, self._read, stream)

    def kept(self, name: StreamName) -> bytes:
        return bytes(self._streams[name].kept)

    def truncated(self, name: StreamName) -> bool:
        return self._streams[name].truncated

    def when_exceeded(self, do: Callable[[], None]) -> None:
        self._when_exceeded = do
        if self.exceeded.is_set():
            do()

    def finish(self) -> None:
        """Takes what is in the pipes, and closes them: all that was written until now, and not a byte more. For when
        the program's tree is gone; who else was given the writing ends, to hold or to flood them, is not waited for."""
        for stream in self._streams.values():
            left = _waiting_in(stream.reader) if stream.open else 0
            while left > 0 and (taken := self._read(stream, left)) > 0:
                left -= taken
        self.close()

    def close(self) -> None:
        """Lets go of everything, whoever still writes."""
        for stream in self._streams.values():
            self._end(stream)

    def _read(self, stream: _Stream, most: int = CAPTURE_CHUNK_BYTES) -> int:
        """Takes what is there, and says how much it was."""
        try:
            chunk = os.read(stream.reader, min(most, CAPTURE_CHUNK_BYTES))
        except OSError:
            return 0
        fitting = chunk[: self._left]
        self._left -= len(fitting)
        if fitting:
            stream.kept += fitting[: self._room]
            stream.truncated |= len(fitting) > self._room
            self._room -= min(len(fitting), self._room)
            if self._sink is not None:
                self._sink(stream.name, fitting)
        if len(fitting) < len(chunk):
            stream.truncated = True
            self.exceeded.set()
            if self._when_exceeded is not None:
                self._when_exceeded()
        return len(chunk)

    def _end(self, stream: _Stream) -> None:
        if not stream.open:
            return
        stream.open = False
        with contextlib.suppress(ValueError, OSError):
            self._loop.remove_reader(stream.reader)
        os.close(stream.reader)
        os.close(stream.writer)


def _waiting_in(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
