"""What a daemon tells the service manager that started it: ready, stopping, still alive.

The protocol is systemd's: datagrams of lines to the socket that ``NOTIFY_SOCKET`` names. It is small enough to be
written by hand, and a daemon needs no library of the service manager's for it.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Final, Self

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE: Final = "WATCHDOG_USEC"
WATCHDOG_PID_VARIABLE: Final = "WATCHDOG_PID"
# A status is one line of a datagram, for people.
MAX_STATUS_CHARS: Final = 256
_US_PER_SECOND: Final = 1_000_000
# The manager waits for twice as long as we take, so that one late turn of the loop is no reason to be killed.
_PINGS_PER_DEADLINE: Final = 2


class ServiceManager:
    """``address`` is empty where nobody asked to be told; then everything here does nothing."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self._address = address
        self._watchdog_seconds = watchdog_seconds

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """Takes the variables out: what this process starts is not to speak in its name."""
        address = environ.pop(SOCKET_VARIABLE, "")
        microseconds, pid = environ.pop(WATCHDOG_VARIABLE, ""), environ.pop(WATCHDOG_PID_VARIABLE, "")
        watched = microseconds.isdecimal() and int(microseconds) > 0 and pid in ("", str(os.getpid()))
        if not address.startswith(("/", "@")):
            return cls()
        return cls(address, int(microseconds) / _US_PER_SECOND if watched else None)

    def ready(self, status: str) -> None:
        self._tell("READY=1", _status(status))

    def status(self, status: str) -> None:
        self._tell(_status(status))

    def stopping(self, status: str = "stopping") -> None:
        self._tell("STOPPING=1", _status(status))

    async def keep_alive(self) -> None:
        """Says so for as long as the event loop turns; ends only by being cancelled."""
        if self._watchdog_seconds is None:
            return
        while True:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / _PINGS_PER_DEADLINE)

    def _tell(self, *lines: str) -> None:
        """A manager that does not listen is no reason to stop working."""
        if not self._address:
            return
        # A name that begins with @ is an abstract one, which the kernel spells with a zero byte.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.connect(address)
                sender.send("\n".join(lines).encode())
        except OSError:
            return


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())[:MAX_STATUS_CHARS]


@asynccontextmanager
async def told_ready(status: str) -> AsyncIterator[ServiceManager]:
    """Ready within, alive as long as it lasts, stopping at its end."""
    async with told_alive() as manager:
        manager.ready(status)
        yield manager


@asynccontextmanager
async def told_alive() -> AsyncIterator[ServiceManager]:
    """For a daemon that says itself when it is ready."""
    manager = ServiceManager.from_environment()
    alive = asyncio.create_task(manager.keep_alive(), name="watchdog")
    try:
        yield manager
    finally:
        manager.stopping()
        alive.cancel()
        await asyncio.wait([alive])
