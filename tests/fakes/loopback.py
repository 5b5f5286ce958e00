"""Servers on loopback for clients' tests: a real one, and one that follows a script of raw bytes."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import uvicorn


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """The address of a real server of this application."""
    # With the protocol named, asyncio recognises TCP and switches Nagle off: answers come at once.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    # Connections wait in the queue until the server is up.
    listener.listen(128)
    config = uvicorn.Config(app, log_config=None, log_level="critical", ws="none", loop="asyncio", http="h11")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join()
        listener.close()


@contextlib.asynccontextmanager
async def greeting(text: bytes) -> AsyncIterator[int]:
    """The port of a server that says this to whoever connects and stays until they leave."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


Script = Callable[[socket.socket], None]


class ScriptedServer:
    """Accepts one connection after another and lets each script have one. ``received`` is what each was sent."""

    def __init__(self, scripts: Sequence[Script], context: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._scripts = scripts
        self._context = context
        self.connections = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _run(self) -> None:
        for script in self._scripts:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(OSError):
                if self._context is None:
                    script(connection)
                else:
                    with self._context.wrap_socket(connection, server_side=True) as secured:
                        script(secured)


def read_request(connection: socket.socket) -> bytes:
    """One request's head and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return data
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def respond(body: bytes, *, head: bytes = b"HTTP/1.1 200 OK\r\n") -> bytes:
    return head + b"content-length: %d\r\n\r\n" % len(body) + body
