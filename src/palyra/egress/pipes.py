"""Pipes through which the kernel moves bulk traffic from socket to socket without showing it to us."""

import contextlib
import fcntl
import os
import sys

from palyra.egress.proxy_limits import MAX_PIPES, MAX_SPARE_PIPES, PIPE_BYTES

CAN_SPLICE = sys.platform == "linux"


class Pipe:
    """Borrowed while bytes are in it; ``held`` says how many."""

    __slots__ = ("held", "read_fd", "write_fd")

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.held = 0
        # A user with many pipes gets small ones: slower, and right all the same.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def close(self) -> None:
        os.close(self.read_fd)
        os.close(self.write_fd)


class PipePool:
    def __init__(self) -> None:
        self._spare: list[Pipe] = []
        self._lent = 0

    def borrow(self) -> Pipe | None:
        """None when there are too many already, or no descriptor is left: the caller copies instead."""
        if not CAN_SPLICE or self._lent >= MAX_PIPES:
            return None
        if not self._spare:
            try:
                self._spare.append(Pipe())
            except OSError:
                return None
        self._lent += 1
        return self._spare.pop()

    def give_back(self, pipe: Pipe) -> None:
        """A pipe with bytes of a tunnel in it is never used for another."""
        self._lent -= 1
        if pipe.held or len(self._spare) >= MAX_SPARE_PIPES:
            pipe.close()
        else:
            self._spare.append(pipe)

    def close(self) -> None:
        while self._spare:
            self._spare.pop().close()
