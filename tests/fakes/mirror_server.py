"""An HTTPS server that shows what it was sent, in the ways servers do."""

import asyncio
import base64
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit


class MirrorServer:
    """``seen`` has the head and body of every request that arrived."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *fields = head.split("\r\n")[:-2]
                headers = dict(field.split(": ", 1) for field in fields)
                body = await reader.readexactly(int(headers.get("Content-Length", 0)))
                self.seen.append((line, headers, body))
                for piece in self.answer(line, headers, body):
                    writer.write(piece)
                    await writer.drain()
                if "/until-close" in line:
                    return
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    def answer(self, line: str, headers: dict[str, str], body: bytes) -> list[bytes]:
        method, path, _ = line.split(" ")
        parts = urlsplit(path)
        token = headers.get("Authorization", "none").removeprefix("Bearer ")
        shown = json.dumps({"line": line, "headers": headers, "body": body.decode()}).encode()
        if parts.path == "/chunked":
            middle = len(token) // 2
            pieces = [b"a" + token[:middle].encode(), token[middle:].encode() + b"z"]
            return [
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                *[b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces],
                b"0\r\n\r\n",
            ]
        if parts.path == "/redirect":
            to = parse_qs(parts.query)["to"][0]
            return [f"HTTP/1.1 302 Found\r\nLocation: {to}?was={quote(token)}\r\nContent-Length: 0\r\n\r\n".encode()]
        if parts.path == "/base64":
            return [reply(base64.b64encode(f"user:{token}".encode()))]
        if parts.path == "/gzip":
            return [reply(gzip.compress(shown), "Content-Encoding: gzip\r\n")]
        if parts.path == "/until-close":
            return [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + shown]
        if method == "HEAD":
            return [f"HTTP/1.1 200 OK\r\nX-Seen: {token}\r\nContent-Length: 5\r\n\r\n".encode()]
        return [reply(shown, f"X-Seen: {token}\r\n")]


def reply(body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def mirror_server(certificates: Path | None) -> AsyncIterator[MirrorServer]:
    mirror = MirrorServer()
    context = None
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "host.pem")
    server = await asyncio.start_server(mirror.handle, "127.0.0.1", 0, ssl=context)
    mirror.port = server.sockets[0].getsockname()[1]
    try:
        yield mirror
    finally:
        server.close()
