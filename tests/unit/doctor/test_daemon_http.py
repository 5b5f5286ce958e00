"""The daemon probe, against a server that answers, one that is unwell, one that babbles, and none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from palyra.doctor.checks import daemon
from palyra.doctor.report import Status


@contextmanager
def answering(reply: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Serve one request with one reply."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                requests.append(connection.recv(65536))
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], requests
        thread.join()


@pytest.mark.parametrize(
    ("reply", "status", "says"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Status.OK, "is healthy"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", Status.WARN, "answers 503"),
        (b"SSH-2.0-OpenSSH\r\n", Status.WARN, "no answer"),
        (b"", Status.WARN, "no answer"),
    ],
)
def test_the_answer_decides(reply: bytes, status: Status, says: str) -> None:
    with answering(reply) as (port, requests):
        found = daemon("127.0.0.1", port)
    assert (found.status, says in found.evidence) == (status, True)
    assert requests[0].startswith(b"GET /healthz HTTP/1.1\r\n")


def test_no_server_is_a_warning_that_says_how_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = daemon("127.0.0.1", port)
    assert found.status is Status.WARN
    assert "palyra up" in found.fix
    assert str(port) in found.evidence
