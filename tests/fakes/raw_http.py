"""HTTP as an attacker sends it, with any header, body and path: into an application of this process, or on a socket."""

import asyncio
import json
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from fakes.gateway_harness import GatewayHarness
from palyra.identity.api_tokens import TokenScope, create_token
from palyra.ids import Principal

Header = tuple[bytes, bytes]


class RawAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    @property
    def data(self) -> Any:
        return self.document["data"]

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.document["error"]
        return error

    @property
    def code(self) -> str:
        return str(self.error["code"])


async def ask(
    app: Any,
    method: str,
    path: str,
    *,
    token: str | None = None,
    body: object = b"",
    headers: Sequence[Header] = (),
    host: str | None = "localhost",
) -> RawAnswer:
    """One request to an ASGI application. A body that is not bytes is sent as its JSON."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    sent: list[Header] = [] if host is None else [(b"host", host.encode("latin-1"))]
    if token is not None:
        sent.append((b"authorization", f"Bearer {token}".encode()))
    raw_path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [*sent, *headers],
        "server": ("127.0.0.1", 7142),
        "client": ("127.0.0.1", 40000),
    }
    pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)] or [b""]
    waiting = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        for number, piece in enumerate(pieces, start=1)
    ]
    started: dict[str, Any] = {}
    answered = bytearray()

    async def receive() -> dict[str, Any]:
        if not waiting:
            # The client stays until it has its answer.
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
        else:
            answered.extend(message.get("body", b""))

    await app(scope, receive, send)
    names = {name.decode().lower(): value.decode() for name, value in started["headers"]}
    return RawAnswer(status=started["status"], headers=names, body=bytes(answered))


async def make_token(
    harness: GatewayHarness,
    principal: str = "agent:bot",
    *scopes: TokenScope,
    run_id: str = "",
    ttl_ms: int | None = None,
) -> str:
    """A token straight from the store, with the scope ``call`` where none is named."""
    _, text = await harness.gateway.store.transact(
        lambda tx: create_token(
            tx,
            Principal.parse(principal),
            scopes or (TokenScope.CALL,),
            actor="test",
            run_id=str(run_id),
            ttl_ms=ttl_ms,
        )
    )
    return text.reveal()


async def operator(harness: GatewayHarness, principal: str = "user:operator") -> str:
    return await make_token(harness, principal, TokenScope.CALL, TokenScope.OPERATE)


def send_raw(url: str, request: bytes) -> bytes:
    """The bytes on a connection of their own; everything the server says until it closes."""
    address = urlsplit(url)
    said = bytearray()
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                said += chunk
        except (BrokenPipeError, ConnectionResetError):
            pass
    return bytes(said)
