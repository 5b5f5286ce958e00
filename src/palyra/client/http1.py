"""One HTTP/1.1 connection as a machine: requests become bytes, bytes become parts of a response.

h11 keeps the protocol's states; this adds the limits and says which errors are the peer's.
"""

from typing import TypeAlias

import h11
import msgspec

from palyra.client.following import Head
from palyra.client.protocol import (
    BadAnswer,
    ClientLimits,
    ConnectionLost,
    Headers,
    Request,
    Response,
    ResponseTooLarge,
)


class Body(msgspec.Struct, frozen=True):
    data: bytes


class End(msgspec.Struct, frozen=True):
    pass


class NeedData(msgspec.Struct, frozen=True):
    pass


Part: TypeAlias = Head | Body | End | NeedData


class Http1Connection:
    """``heard`` tells whether any byte of the current answer has arrived: until then, a GET may be repeated."""

    def __init__(self, host_header: str, prefix: str, limits: ClientLimits) -> None:
        self._host_header = host_header
        self._prefix = prefix
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.max_header_bytes)
        self._eof = False
        self.heard = False

    def start(self, request: Request) -> bytes:
        if self._h11.our_state is h11.DONE:
            self._h11.start_next_cycle()
        self.heard = False
        head = h11.Request(
            method=request.method,
            target=self._prefix + request.path,
            headers=request.wire_headers(self._host_header),
        )
        parts = [self._h11.send(head)]
        if request.body:
            parts.append(self._h11.send(h11.Data(data=request.body)))
        parts.append(self._h11.send(h11.EndOfMessage()))
        return b"".join(part for part in parts if part)

    def receive(self, data: bytes) -> None:
        """Bytes from the peer; empty when it closed its side."""
        self.heard = self.heard or bool(data)
        self._eof = self._eof or not data
        self._h11.receive_data(data)

    def next_part(self) -> Part:
        while True:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                if self._eof:
                    raise ConnectionLost("the server closed the connection in the middle of its answer") from error
                raise BadAnswer(f"the server does not speak HTTP/1.1: {error}") from error
            match event:
                case h11.InformationalResponse():
                    continue
                case h11.Response():
                    return _head(event)
                case h11.Data():
                    return Body(bytes(event.data))
                case h11.EndOfMessage():
                    return End()
                case h11.NEED_DATA:
                    return NeedData()
                case _:
                    raise ConnectionLost("the server closed the connection without an answer")

    @property
    def reusable(self) -> bool:
        return not self._eof and self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE


class ResponseBuilder:
    """Gathers the parts of one response, up to the limit."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limit = limits.max_response_bytes
        self._head: Head | None = None
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, part: Head | Body) -> None:
        match part:
            case Head():
                self._head = part
            case Body(data):
                self._size += len(data)
                if self._size > self._limit:
                    raise ResponseTooLarge(f"the answer is larger than {self._limit} bytes", limit=self._limit)
                self._chunks.append(data)

    def finish(self) -> Response:
        if self._head is None:
            raise ConnectionLost("the server ended without an answer")
        return Response(status=self._head.status, headers=self._head.headers, body=b"".join(self._chunks))


def _head(response: h11.Response) -> Head:
    headers: Headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in response.headers)
    encoding = next((value for name, value in headers if name == "content-encoding"), "identity")
    if encoding.lower() != "identity":
        raise BadAnswer("the server compressed an answer that was asked for as it is")
    return Head(response.status_code, headers)
