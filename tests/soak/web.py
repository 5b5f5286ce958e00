"""The only host that there is: a small shop in the daemon's network."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fakes.star_of_networks import enter
from fakes.two_networks import Network
from soak.settings import WEB_PORT

PAGE = b"""<!doctype html><title>Orders</title><h1>Orders</h1><p>Seven of them.</p>
<input aria-label="Find"><button onclick="document.title='pressed'">Press</button><a href="/more">More orders</a>"""


class _Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = PAGE if not self.path.startswith("/bytes") else b"x" * 20_000
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_arguments: Any) -> None:
        """Browsers and proxies that are killed break their connections."""


@contextmanager
def web_server(network: Network) -> Iterator[None]:
    made: list[_Server] = []
    ready = threading.Event()

    def serve() -> None:
        enter(network)
        made.append(_Server(("0.0.0.0", WEB_PORT), _Page))
        ready.set()
        made[0].serve_forever(0.1)

    thread = threading.Thread(target=serve, name="the shop")
    thread.start()
    ready.wait(30)
    try:
        yield
    finally:
        made[0].shutdown()
        thread.join()
        made[0].server_close()
