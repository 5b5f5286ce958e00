"""A real Chromium on a data directory, and a page at which one can log in, for tests of what stays."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, sync_playwright

CHROMIUM = Path("/usr/lib/chromium/chromium-headless-shell")
# Nothing but the loopback has an address.
_ARGUMENTS = ["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--disable-background-networking"]

STORE = """async () => {
  localStorage.setItem("token", "local");
  await new Promise((done, failed) => {
    const opened = indexedDB.open("shop", 1);
    opened.onupgradeneeded = () => opened.result.createObjectStore("cart");
    opened.onerror = failed;
    opened.onsuccess = () => {
      const change = opened.result.transaction("cart", "readwrite");
      change.objectStore("cart").put("indexed", "item");
      change.oncomplete = done;
    };
  });
}"""
LOOK = """async () => [document.body.innerText, localStorage.getItem("token"), await new Promise((done, failed) => {
  const opened = indexedDB.open("shop", 1);
  opened.onupgradeneeded = () => opened.result.createObjectStore("cart");
  opened.onerror = failed;
  opened.onsuccess = () => {
    const asked = opened.result.transaction("cart").objectStore("cart").get("item");
    asked.onsuccess = () => done(asked.result ?? null);
  };
})]"""

LOGGED_IN = ["sid=s3cret", "local", "indexed"]
STRANGER = ["stranger", None, None]


class _Shop(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        if self.path == "/login":
            self.send_header("Set-Cookie", "sid=s3cret; Max-Age=9999; HttpOnly")
        self.end_headers()
        self.wfile.write(f"<p>{self.headers.get('Cookie', 'stranger')}".encode())

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def shop() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Shop)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def chromium(data: Path) -> Iterator[BrowserContext]:
    """Closed gracefully at the end, so that everything is on disk."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(data), executable_path=str(CHROMIUM), args=_ARGUMENTS, timeout=60_000
        )
        yield context
        context.close()


def log_in(context: BrowserContext, address: str) -> None:
    page = context.new_page()
    page.goto(f"{address}/login")
    page.evaluate(STORE)


def seen(context: BrowserContext, address: str) -> list[str | None]:
    page = context.new_page()
    page.goto(f"{address}/")
    found: list[str | None] = page.evaluate(LOOK)
    return found
