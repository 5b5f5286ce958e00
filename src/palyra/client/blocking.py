"""The blocking transport: HTTP/1.1 over a socket, with kept-alive connections. Threads may share it."""

import contextlib
import select
import socket
import ssl
import threading
import time
from typing import Self

from palyra.client.address import ServerAddress
from palyra.client.following import Head
from palyra.client.http1 import Body, End, Http1Connection, NeedData, Part, ResponseBuilder
from palyra.client.protocol import (
    BadAnswer,
    ClientLimits,
    ClientTimeout,
    ConnectFailed,
    ConnectionLost,
    Headers,
    Request,
    Response,
)
from palyra.limits import KIB

_RECEIVE_BYTES = 64 * KIB
_MS_PER_SECOND = 1000


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends = time.monotonic() + seconds

    def left(self) -> float:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise self.passed()
        return left

    def passed(self) -> ClientTimeout:
        return ClientTimeout(f"no answer within {self._seconds:g} seconds")


class BlockingTransport:
    def __init__(
        self,
        address: ServerAddress,
        *,
        timeout: float,
        limits: ClientLimits,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._address = address
        self._timeout = timeout
        self._limits = limits
        self._ssl_context = (ssl_context or ssl.create_default_context()) if address.tls else None
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._closed = False

    def exchange(self, request: Request) -> Response:
        deadline = Deadline(self._timeout + request.patience_ms / _MS_PER_SECOND)
        kept = self._take_idle()
        if kept is not None:
            try:
                return self._converse(kept, request, deadline)
            except ConnectionLost:
                # The server may close a kept connection just as we use it. Nothing was heard, so a GET may be repeated;
                # anything else might be carried out twice.
                if kept.http.heard or not request.is_repeatable:
                    raise
        return self._converse(self._connect(deadline), request, deadline)

    def open_stream(self, request: Request) -> "BlockingStream":
        deadline = Deadline(self._timeout)
        connection = self._connect(deadline)
        try:
            connection.send(request, deadline)
            head = connection.next_part(deadline)
            if not isinstance(head, Head):
                raise BadAnswer("the server sent a body before a head")
        except BaseException:
            connection.close()
            raise
        return BlockingStream(connection, head, self._limits)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> "_Connection | None":
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.is_quiet():
                    return connection
                connection.close()
        return None

    def _keep(self, connection: "_Connection") -> None:
        with self._lock:
            if connection.http.reusable and not self._closed and len(self._idle) < self._limits.max_idle_connections:
                self._idle.append(connection)
                return
        connection.close()

    def _converse(self, connection: "_Connection", request: Request, deadline: Deadline) -> Response:
        try:
            connection.send(request, deadline)
            builder = ResponseBuilder(self._limits)
            while not isinstance(part := connection.next_part(deadline), End):
                builder.add(part)
            response = builder.finish()
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return response

    def _connect(self, deadline: Deadline) -> "_Connection":
        address = self._address
        try:
            raw = socket.create_connection((address.host, address.port), timeout=deadline.left())
        except TimeoutError as error:
            raise deadline.passed() from error
        except OSError as error:
            raise ConnectFailed(f"cannot connect to {address.host_header}: {error.strerror or error}") from error
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.settimeout(deadline.left())
            sock = (
                raw if self._ssl_context is None else self._ssl_context.wrap_socket(raw, server_hostname=address.host)
            )
        except TimeoutError as error:
            raw.close()
            raise deadline.passed() from error
        except OSError as error:
            raw.close()
            raise ConnectFailed(f"no trusted connection to {address.host_header}: {error}") from error
        except BaseException:
            raw.close()
            raise
        return _Connection(sock, Http1Connection(address.host_header, address.prefix, self._limits))


class BlockingStream:
    """An answer read as it comes. ``chunk`` returns bytes, empty at a clean end."""

    def __init__(self, connection: "_Connection", head: Head, limits: ClientLimits) -> None:
        self._connection = connection
        self._idle_seconds = limits.stream_idle_seconds
        self.status: int = head.status
        self.headers: Headers = head.headers

    def chunk(self) -> bytes:
        deadline = Deadline(self._idle_seconds)
        while isinstance(part := self._connection.next_part(deadline), Body):
            if part.data:
                return part.data
        return b""

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class _Connection:
    def __init__(self, sock: socket.socket, http: Http1Connection) -> None:
        self._socket = sock
        self.http = http

    def is_quiet(self) -> bool:
        """An idle connection has nothing to say; one that is readable was closed, or is out of step."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def send(self, request: Request, deadline: Deadline) -> None:
        data = self.http.start(request)
        try:
            self._socket.settimeout(deadline.left())
            self._socket.sendall(data)
        except TimeoutError as error:
            raise deadline.passed() from error
        except OSError:
            # A server may refuse a large body early and close: its answer, if there is one, says more than our error.
            return

    def next_part(self, deadline: Deadline) -> Head | Body | End:
        while True:
            part: Part = self.http.next_part()
            if not isinstance(part, NeedData):
                return part
            try:
                self._socket.settimeout(deadline.left())
                data = self._socket.recv(_RECEIVE_BYTES)
            except TimeoutError as error:
                raise deadline.passed() from error
            except OSError as error:
                raise ConnectionLost(f"the connection broke: {error.strerror or error}") from error
            self.http.receive(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
