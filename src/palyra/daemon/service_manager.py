"""Notifications of a daemon to the service manager that started it: ready, stopping, still alive."""

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
    """Notifies the service manager. Without an ``address`` it does nothing."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self._address = address
        self._watchdog_seconds = watchdog_seconds

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """Read the variables and remove them, so that child processes cannot notify in its name."""
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
        """Notify that it is alive while the event loop runs. Ends only by being cancelled."""
        if self._watchdog_seconds is None:
            return
        while True:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / _PINGS_PER_DEADLINE)

    def _tell(self, *lines: str) -> None:
        """Send the lines. A manager that does not listen is no reason to stop working."""
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
async def notify_ready(status: str) -> AsyncIterator[ServiceManager]:
    """Notify ready at the beginning, alive meanwhile, and stopping at the end."""
    async with notify_alive() as manager:
        manager.ready(status)
        yield manager


@asynccontextmanager
async def notify_alive() -> AsyncIterator[ServiceManager]:
    """Notify alive and stopping, for a daemon that notifies ready itself."""
    manager = ServiceManager.from_environment()
    alive = asyncio.create_task(manager.keep_alive(), name="watchdog")
    try:
        yield manager
    finally:
        manager.stopping()
        alive.cancel()
        await asyncio.wait([alive])
