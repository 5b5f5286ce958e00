"""The process of a served host: enters a network namespace of its own, waits for its link, serves."""

import asyncio
import ctypes
import json
import socket
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncssh

from fakes.served_host import DATABASE_PORT, FORBIDDEN_PORT, SSH_PORT

CLONE_NEWNET = 0x40000000


class Log:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def __call__(self, **entry: Any) -> None:
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def main(base: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    say({"ready": "namespace"})
    address = json.loads(sys.stdin.readline())
    log = Log(base / "arrived.jsonl")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(base / "host.pem")
    for family in (address["address"], address["address6"]):
        serve_http(log, base / "www", (family, 80))
        serve_http(log, base / "www", (family, 443), context)
        serve_lines(log, family, FORBIDDEN_PORT, "forbidden")
        serve_lines(log, family, DATABASE_PORT, "database")
        listen_udp(log, family, 53)
    asyncio.run(serve_ssh(log, base, address["address"]))


def say(message: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def serve_http(log: Log, www: Path, where: tuple[str, int], context: ssl.SSLContext | None = None) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
            pass

        def reply(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            log(what="http", port=where[1], method=self.command, path=self.path, headers=dict(self.headers.items()))
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else b""
            if parts.path == "/headers":
                shown = {"method": self.command, "headers": dict(self.headers.items()), "body": body.decode()}
                self.reply(200, json.dumps(shown).encode(), Content_Type="application/json")
            elif parts.path == "/redirect":
                self.reply(302, b"", Location=parse_qs(parts.query)["to"][0])
            elif parts.path == "/page":
                page = b"<html><title>A page</title><h1>Hello</h1><script>bad()</script><p>Some <b>text</b></p></html>"
                self.reply(200, page, Content_Type="text/html; charset=utf-8")
            elif parts.path.startswith("/repo.git/"):
                file = www / parts.path.lstrip("/")
                found = file.is_file() and ".." not in parts.path
                self.reply(200 if found else 404, file.read_bytes() if found else b"")
            else:
                self.reply(200, b"hello from the served host\n")

        do_POST = do_PUT = do_HEAD = do_DELETE = do_GET  # the base class asks for these names

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        daemon_threads = True

        def finish_request(self, request: Any, client_address: Any) -> None:
            if context is not None:
                request = context.wrap_socket(request, server_side=True)
            super().finish_request(request, client_address)

        def handle_error(self, request: Any, client_address: Any) -> None:
            log(what="broken", port=where[1], error=repr(sys.exc_info()[1]))

    threading.Thread(target=Server(where, Handler).serve_forever, daemon=True).start()


def serve_lines(log: Log, address: str, port: int, name: str) -> None:
    """A server that speaks first, as many protocols do, and then repeats what it hears."""

    def serve(connection: socket.socket) -> None:
        with connection:
            log(what=name, port=port)
            connection.sendall(b"ready\n")
            while data := connection.recv(4096):
                connection.sendall(data)

    def accept(listener: socket.socket) -> None:
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family)
    threading.Thread(target=accept, args=(listener,), daemon=True).start()


def listen_udp(log: Log, address: str, port: int) -> None:
    def receive(sock: socket.socket) -> None:
        while True:
            sock.recv(4096)
            log(what="udp", port=port)

    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, port))
    threading.Thread(target=receive, args=(sock,), daemon=True).start()


async def serve_ssh(log: Log, base: Path, address: str) -> None:
    async def handle(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        log(what="ssh", port=SSH_PORT, command=process.command)
        if process.command != "git-upload-pack '/repo.git'":
            process.exit(1)
            return
        git = await asyncio.create_subprocess_exec(
            "git-upload-pack", str(base / "www" / "repo.git"), stdin=-1, stdout=-1, stderr=-1
        )
        await process.redirect(stdin=git.stdin, stdout=git.stdout, stderr=git.stderr)
        await process.stdout.drain()
        process.exit(await git.wait())

    await asyncssh.listen(
        address,
        SSH_PORT,
        server_host_keys=[str(base / "host_key")],
        authorized_client_keys=str(base / "client_key.pub"),
        process_factory=handle,
        encoding=None,
    )
    say({"ready": "servers"})
    await asyncio.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
