"""The proxy as a process: its first line, its refusals, its end."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fakes import egress_proxy_main


@contextmanager
def echoing() -> Iterator[int]:
    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):
                while data := connection.recv(65536):
                    connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def running(*words: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    command = [sys.executable, egress_proxy_main.__file__, "--until-input-ends", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield process, json.loads(line)["port"]
        finally:
            process.terminate()


def ask(port: int, authority: str) -> tuple[socket.socket, bytes]:
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    return client, client.recv(4096)


def test_it_says_where_it_is_serves_and_writes_refusals_down() -> None:
    with echoing() as port:
        site = f"site.test:{port}"
        words = ("--allow", site, "--private-target", site, "--static", "site.test=127.0.0.1")
        with running(*words) as (process, where):
            for _ in range(4):
                client, answer = ask(where, site)
                assert answer.startswith(b"HTTP/1.1 200 ")
                client.sendall(b"\x00through")
                assert client.recv(100) == b"\x00through"
                client.close()
            client, answer = ask(where, "other.test:443")
            assert answer.startswith(b"HTTP/1.1 403 ")
            client.close()
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            refusal = json.loads(process.stderr.readline())
            assert refusal["refusal"]["code"] == "egress.host_not_allowed"
            process.stdin.close()
            last = json.loads(process.stdout.read().splitlines()[-1])
            assert process.wait(30) == 0
            assert last["connections"] == 4


def test_a_rule_that_is_none_is_said_so() -> None:
    command = [sys.executable, egress_proxy_main.__file__, "--allow", "*"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"egress.bad_host_rule" in done.stderr
