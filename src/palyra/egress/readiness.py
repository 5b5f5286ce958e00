"""Which sockets can be read or written, from an epoll of our own inside the event loop's.

The loop's own add_reader and remove_reader cost more than the traffic of a short connection; here a socket is
registered once, with edges, and its handler is called without a trip through the loop's queue.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from palyra.egress.proxy_limits import EVENTS_PER_TURN

_READING: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_BOTH: Final = _READING | select.EPOLLOUT
ENDED: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
READABLE: Final = select.EPOLLIN | ENDED
WRITABLE: Final = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR


class Readiness:
    """One for each loop. An event is a hint: whoever gets it tries, and waits for the next if there was nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        # The loop holds this object and not the other way round, so that both can go together.
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def watch(self, descriptor: int, handler: Callable[[int], None], *, writing: bool) -> None:
        """Calls ``handler`` with the events. What is ready already is told too."""
        known = descriptor in self._handlers
        self._handlers[descriptor] = handler
        change = self._epoll.modify if known else self._epoll.register
        change(descriptor, _BOTH if writing else _READING)

    def forget(self, descriptor: int) -> None:
        """Before the socket is closed, which ends the registration. A late event for its number is only a hint."""
        self._handlers.pop(descriptor, None)

    def _dispatch(self) -> None:
        handlers = self._handlers
        for descriptor, events in self._epoll.poll(0, EVENTS_PER_TURN):
            handler = handlers.get(descriptor)
            if handler is not None:
                handler(events)


_known: "WeakKeyDictionary[asyncio.AbstractEventLoop, Readiness]" = WeakKeyDictionary()


def readiness_of(loop: asyncio.AbstractEventLoop) -> Readiness:
    found = _known.get(loop)
    if found is None:
        found = _known[loop] = Readiness(loop)
    return found
