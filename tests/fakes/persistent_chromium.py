"""A real Chromium on a data directory, and a page at which one can log in, for tests of what stays."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

from fakes.web_server import QuietHandler, web_server

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


class _Shop(QuietHandler):
    def do_GET(self) -> None:
        cookie = {"Set_Cookie": "sid=s3cret; Max-Age=9999; HttpOnly"} if self.path == "/login" else {}
        self.answer(f"<p>{self.headers.get('Cookie', 'stranger')}".encode(), **cookie)


@contextmanager
def shop() -> Iterator[str]:
    with web_server(_Shop) as port:
        yield f"http://127.0.0.1:{port}"


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
