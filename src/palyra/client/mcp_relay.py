"""Relays the stdin of an agent's MCP client to a daemon, and the daemon's answers to stdout, as they come.

Body and answer of one HTTP request both stay open. The relay reads no message: the daemon is the MCP server. It uses
threads, and no MCP library, because loading asyncio and the library would delay the client.
"""

import os
import socket
import threading
from typing import Final

import h11

from palyra.client.address import ServerAddress
from palyra.client.protocol import ConnectFailed, ConnectionLost
from palyra.errors import Failed
from palyra.ids import PRINCIPAL_HEADER
from palyra.secret import Secret

PATH: Final = "/mcp/stdio"
CONNECT_SECONDS: Final = 10.0
# As much as a pipe holds.
CHUNK_BYTES: Final = 64 * 1024
# A longer refusal is cut off.
MAX_REFUSAL_BYTES: Final = 64 * 1024


class RelayRefused(Failed):
    code = "mcp.refused"
    hint = "the daemon's own message says why"


class StdioRelay:
    def __init__(self, url: str, token: Secret, principal: str | None, *, source: int = 0, target: int = 1) -> None:
        self._address = ServerAddress.parse(url)
        self._token = token
        self._principal = principal
        self._source = source
        self._target = target
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=CHUNK_BYTES)
        # The two threads share the connection's state, and never wait while they hold it.
        self._state = threading.Lock()

    def run(self) -> None:
        """Return when the client has closed its side and has every answer. Raise when the daemon is gone."""
        with self._connected() as connection:
            self._send(connection, self._head())
            feeding = threading.Thread(target=self._feed, args=(connection,), name="stdin", daemon=True)
            feeding.start()
            self._drain(connection)

    def _connected(self) -> socket.socket:
        try:
            plain = socket.create_connection((self._address.host, self._address.port), CONNECT_SECONDS)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(None)
            if not self._address.tls:
                return plain
            import ssl

            return ssl.create_default_context().wrap_socket(plain, server_hostname=self._address.host)
        except OSError as error:
            raise ConnectFailed(f"cannot reach {self._address.host_header}: {error}") from error

    def _head(self) -> h11.Request:
        headers = [
            ("host", self._address.host_header),
            ("authorization", f"Bearer {self._token.reveal()}"),
            ("content-type", "application/x-ndjson"),
            ("transfer-encoding", "chunked"),
        ]
        if self._principal is not None:
            headers.append((PRINCIPAL_HEADER, self._principal))
        return h11.Request(method="POST", target=self._address.prefix + PATH, headers=headers)

    def _send(self, connection: socket.socket, event: h11.Event) -> None:
        with self._state:
            data = self._protocol.send(event)
        if data:
            connection.sendall(data)

    def _feed(self, connection: socket.socket) -> None:
        try:
            while chunk := os.read(self._source, CHUNK_BYTES):
                self._send(connection, h11.Data(data=chunk))
            self._send(connection, h11.EndOfMessage())
        except (OSError, h11.LocalProtocolError):
            # The daemon closed the connection. The other thread sees it too, and raises.
            return

    def _drain(self, connection: socket.socket) -> None:
        refused: h11.Response | None = None
        refusal = bytearray()
        while True:
            event = self._next_event(connection)
            match event:
                case h11.Response() if event.status_code != 200:
                    refused = event
                case h11.Data() if refused is not None:
                    refusal += event.data[: MAX_REFUSAL_BYTES - len(refusal)]
                case h11.Data():
                    _write_all(self._target, bytes(event.data))
                case h11.EndOfMessage() if refused is not None:
                    raise _refusal(refused.status_code, bytes(refusal))
                case h11.EndOfMessage():
                    return
                case h11.ConnectionClosed():
                    raise ConnectionLost("the daemon closed the connection")

    def _next_event(self, connection: socket.socket) -> object:
        while True:
            try:
                with self._state:
                    event = self._protocol.next_event()
                if event is not h11.NEED_DATA:
                    return event
                data = connection.recv(CHUNK_BYTES)
                with self._state:
                    self._protocol.receive_data(data)
            except (OSError, h11.RemoteProtocolError) as error:
                raise ConnectionLost(f"the connection to the daemon broke: {error}") from error


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def _refusal(status: int, body: bytes) -> RelayRefused:
    import json

    try:
        error = json.loads(body)["error"]
        return RelayRefused(f"{error['message']} [{error['code']}]", hint=error.get("hint"))
    except (ValueError, KeyError, TypeError):
        return RelayRefused(f"the daemon answered {status}")
