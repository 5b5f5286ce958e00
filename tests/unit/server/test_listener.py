"""The bound on request heads must not touch bodies, however they arrive."""

import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

from fakes.daemon import Daemon, Place
from palyra.limits import MAX_HTTP_HEAD_BYTES


def _answers(daemon: Daemon, *parts: bytes) -> bytes:
    address = urlsplit(daemon.url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.01)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def _post(daemon: Daemon, size: int, *, last: bool) -> bytes:
    closing = b"Connection: close\r\n" if last else b""
    closing += b"Authorization: Bearer " + daemon.token.encode() + b"\r\n"
    head = b"POST /v1/tool-calls HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (closing, size)
    return head + b"x" * size


def test_large_bodies_pass_whole_in_pieces_and_one_after_the_other(tmp_path: Path) -> None:
    size = 3 * MAX_HTTP_HEAD_BYTES
    with Place(tmp_path).daemon() as daemon:
        whole = _answers(daemon, _post(daemon, size, last=True))
        assert b" 400 " in whole and b" 431 " not in whole
        request = _post(daemon, size, last=True)
        pieces = [request[at : at + 20_000] for at in range(0, len(request), 20_000)]
        assert b" 400 " in _answers(daemon, *pieces)
        two = _answers(daemon, _post(daemon, size, last=False), _post(daemon, size, last=True))
        assert two.count(b" 400 ") == 2 and b" 431 " not in two
