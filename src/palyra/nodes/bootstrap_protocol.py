"""Uvicorn's HTTP parser with the bounds of a listener that anybody may reach: places, heads, time."""

from asyncio import TimerHandle, Transport
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from palyra.nodes.guess_throttle import network_of
from palyra.nodes.limits import (
    MAX_PAIRING_CONNECTIONS,
    MAX_PAIRING_CONNECTIONS_PER_ADDRESS,
    MAX_PAIRING_HEAD_BYTES,
    PAIRING_REQUEST_SECONDS,
)


class Place:
    """One connection's place, given back once."""

    def __init__(self, places: "Places", network: str) -> None:
        self._places: Places | None = places
        self.network = network

    def leave(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.give_back(self.network)


class Places:
    """Open connections of one listener, those in their handshake included: so many in all, so many from one network."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def take(self, address: str) -> Place | None:
        network = network_of(address)
        if self._taken.total() >= MAX_PAIRING_CONNECTIONS:
            return None
        if self._taken[network] >= MAX_PAIRING_CONNECTIONS_PER_ADDRESS:
            return None
        self._taken[network] += 1
        return Place(self, network)

    def give_back(self, network: str) -> None:
        self._taken[network] -= 1
        if not self._taken[network]:
            del self._taken[network]

    def taken(self) -> int:
        return self._taken.total()


class BootstrapHttpProtocol(HttpToolsProtocol):
    """Closes a connection that brings too large a head, or does not bring a whole request in time."""

    def __init__(self, place: Place, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._place = place
        self._in_head = True
        self._head_bytes = 0
        self._deadline: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        self._place.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # What came with the end of a head is body; then the count began anew.
        if self._in_head and self._head_bytes > MAX_PAIRING_HEAD_BYTES:
            self._close()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        if sum(len(name) + len(value) for name, value in self.headers) > MAX_PAIRING_HEAD_BYTES:
            self._close()
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._in_head = True
        super().on_response_complete()
        if not self.transport.is_closing():
            self._start_deadline()

    def _start_deadline(self) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(PAIRING_REQUEST_SECONDS, self._close)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()
