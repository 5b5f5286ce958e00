"""A door on loopback that adds a token to every request, for programs that cannot be given one."""

import contextlib
import socket
import threading
from collections.abc import Iterator

MAX_HEAD_BYTES = 64 * 1024


@contextlib.contextmanager
def with_token(url: str, token: str) -> Iterator[int]:
    """The port that leads to the daemon at ``url``, each connection with one request, which is sent as it came."""
    host, port = url.removeprefix("http://").split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    open_now: set[socket.socket] = set()

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=carry, args=(near,), daemon=True).start()

    def carry(near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection((host, int(port))) as far:
            open_now.update((near, far))
            head = b""
            while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
                if not (data := near.recv(65536)):
                    return
                head += data
            head, _, body = head.partition(b"\r\n\r\n")
            kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            added = [f"authorization: Bearer {token}".encode(), b"connection: close"]
            far.sendall(b"\r\n".join((*kept, *added, b"", body)))
            threading.Thread(target=pump, args=(near, far), daemon=True).start()
            pump(far, near)
            open_now.difference_update((near, far))

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        # Closing alone does not wake the one who waits there.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for each in tuple(open_now):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        accepting.join(30)
