"""A small web server on loopback, that answers as a test's own handler does, or every request with one page."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HTML = "text/html; charset=utf-8"


class QuietHandler(http.server.BaseHTTPRequestHandler):
    def answer(self, body: bytes, media_type: str = HTML, **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def web_server(handler: type[QuietHandler]) -> Iterator[int]:
    """Its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def web_page(page: bytes) -> Iterator[int]:
    """The port at which every address is this page."""

    class Page(QuietHandler):
        def do_GET(self) -> None:
            self.answer(page)

    with web_server(Page) as port:
        yield port
