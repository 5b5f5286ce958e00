"""A small shop on loopback with everything that is hard in a browser: for whoever drives one in a test.

One server answers under every name that leads to it; which name was asked for is in the Host header, so that
``shop.test`` and ``other.test`` are two origins of one process. Nothing here is slow by the clock: a page that waits
says in its address how long.
"""

import http.server
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from email.parser import BytesParser
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fakes import web_pages

SHOP, OTHER = "shop.test", "other.test"
USER, PASSWORD = "anna", "correct horse battery"
ORDERS = 57
PAGE = 10
_MAX_BODY = 16 * 1024 * 1024


def order(number: int) -> dict[str, Any]:
    """The orders are the same for everybody: number, customer, amount."""
    names = ("Ada", "Berta", "Cäcilie", "Dora", "Emma")
    return {"id": 1000 + number, "customer": f"{names[number % len(names)]} {number}", "amount": number * 7}


def orders_csv() -> str:
    lines = [f"{one['id']},{one['customer']},{one['amount']}" for one in map(order, range(1, ORDERS + 1))]
    return "\n".join(("id,customer,amount", *lines)) + "\n"


class WebApplication:
    """``requests`` has method, host and path of everything that arrived, ``typed`` what was sent in forms, ``uploads``
    the files, ``shipped`` the orders that somebody shipped, ``clicks`` what was clicked on pages that report it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.typed: list[dict[str, str]] = []
        self.uploads: list[tuple[str, bytes]] = []
        self.shipped: list[int] = []
        self.clicks: list[str] = []
        self.sessions: set[str] = set()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, name="web application")
        # Set when a page that waits for it may go on: `/slow?until=gate`.
        self.gate = threading.Event()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def url(self, path: str = "/", host: str = SHOP) -> str:
        return f"http://{host}:{self.port}{path}"

    def origin(self, host: str = SHOP) -> str:
        return f"http://{host}:{self.port}"

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """For the resolver of a guard, or the setting egress.static_hosts."""
        return {SHOP: ("127.0.0.1",), OTHER: ("127.0.0.1",)}

    def paths(self, host: str = SHOP) -> list[str]:
        return [path for _, name, path in self.requests if name == host]

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def web_application() -> Iterator[WebApplication]:
    application = WebApplication()
    application.start()
    try:
        yield application
    finally:
        application.close()


def _handler_of(application: WebApplication) -> type[http.server.BaseHTTPRequestHandler]:
    return type("Handler", (_Handler,), {"application": application})


class _Handler(http.server.BaseHTTPRequestHandler):
    application: WebApplication
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._note()
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        answer = getattr(self, "get_" + (parts.path.strip("/").replace("-", "_").replace(".", "_") or "home"), None)
        if answer is None:
            self.reply("<title>Not here</title><h1>There is no such page</h1>", status=404)
        else:
            answer(query)

    def do_POST(self) -> None:
        self._note()
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(min(length, _MAX_BODY))
        path = urlsplit(self.path).path
        if self.headers.get("Content-Type", "").startswith("multipart/form-data"):
            self.post_upload(body)
            return
        form = {name: values[0] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
        self.application.typed.append(form)
        match path:
            case "/login":
                self.post_login(form)
            case "/echo":
                said = escape(form.get("said", ""))
                self.reply(f"<title>Echo</title><h1>You said</h1><p id=said>{said}</p>")
            case "/ship":
                if self._known():
                    self.application.shipped.append(int(form["id"]))
                self.redirect(f"/orders?page={form.get('page', '1')}")
            case "/clicked":
                self.application.clicks.append(form.get("what", ""))
                self.reply("noted")
            case _:
                self.reply("<h1>There is no such page</h1>", status=404)

    def _note(self) -> None:
        host = self.headers.get("Host", "").partition(":")[0]
        self.application.requests.append((self.command, host, self.path))

    def _known(self) -> str:
        """The session of the caller's cookie, if it is one of ours."""
        for part in self.headers.get("Cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == "sid" and value in self.application.sessions:
                return value
        return ""

    def reply(
        self, text: str | bytes, *, status: int = 200, kind: str = "text/html; charset=utf-8", **more: str
    ) -> None:
        body = text.encode() if isinstance(text, str) else text
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def redirect(self, to: str, **more: str) -> None:
        self.reply("", status=303, Location=to, **more)

    # Pages, each by its path with dashes and dots as underscores.

    def get_home(self, _: dict[str, str]) -> None:
        self.reply(web_pages.home(USER if self._known() else ""))

    def get_login(self, query: dict[str, str]) -> None:
        self.reply(web_pages.login(wrong="wrong" in query))

    def post_login(self, form: dict[str, str]) -> None:
        if form.get("user") != USER or form.get("password") != PASSWORD:
            return self.redirect("/login?wrong=1")
        session = secrets.token_hex(8)
        self.application.sessions.add(session)
        return self.redirect("/welcome", Set_Cookie=f"sid={session}; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax")

    def get_welcome(self, _: dict[str, str]) -> None:
        if not self._known():
            return self.redirect("/login")
        return self.reply(web_pages.welcome(USER))

    def get_logout(self, _: dict[str, str]) -> None:
        self.application.sessions.discard(self._known())
        self.redirect("/login", Set_Cookie="sid=; Path=/; Max-Age=0")

    def get_orders(self, query: dict[str, str]) -> None:
        if not self._known():
            return self.redirect("/login")
        page = int(query.get("page", "1"))
        wanted = query.get("search", "")
        found = [one for one in map(order, range(1, ORDERS + 1)) if wanted.lower() in one["customer"].lower()]
        rows = found[(page - 1) * PAGE : page * PAGE]
        pages = max(1, -(-len(found) // PAGE))
        return self.reply(web_pages.orders(rows, page, pages, wanted, set(self.application.shipped)))

    def get_orders_csv(self, _: dict[str, str]) -> None:
        if not self._known():
            return self.redirect("/login")
        more = {"Content_Disposition": 'attachment; filename="orders.csv"'}
        return self.reply(orders_csv(), kind="text/csv; charset=utf-8", **more)

    def get_disguised_csv(self, _: dict[str, str]) -> None:
        """A program that calls itself a table."""
        content = b"MZ\x90\x00\x03\x00\x00\x00" + b"\x00" * 512
        self.reply(content, kind="text/csv", Content_Disposition='attachment; filename="disguised.csv"')

    def get_dialogs(self, _: dict[str, str]) -> None:
        self.reply(web_pages.DIALOGS)

    def get_frames(self, _: dict[str, str]) -> None:
        other = f"http://{OTHER}:{self.application.port}/framed?who=other"
        self.reply(web_pages.frames(other))

    def get_framed(self, query: dict[str, str]) -> None:
        self.reply(web_pages.framed(query.get("who", "same")))

    def get_shadow(self, _: dict[str, str]) -> None:
        self.reply(web_pages.SHADOW)

    def get_upload(self, _: dict[str, str]) -> None:
        self.reply(web_pages.UPLOAD)

    def post_upload(self, body: bytes) -> None:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        message: Message = BytesParser().parsebytes(head + body)
        names = []
        for part in message.get_payload():
            assert isinstance(part, Message)
            name = part.get_filename()
            if name is not None:
                name = name.encode("ascii", "surrogateescape").decode()
                content = part.get_payload(decode=True)
                assert isinstance(content, bytes)
                self.application.uploads.append((name, content))
                names.append(f"{escape(name)} ({len(content)} bytes)")
        self.reply(f"<title>Received</title><h1>Received</h1><p id=received>{', '.join(names)}</p>")

    def get_popup(self, _: dict[str, str]) -> None:
        other = f"http://{OTHER}:{self.application.port}/framed?who=popup"
        self.reply(web_pages.popup(other))

    def get_slow(self, query: dict[str, str]) -> None:
        """An element that comes later: after ``ms``, or when the test opens the gate (``until=gate``)."""
        self.reply(web_pages.slow("gate" if query.get("until") == "gate" else query.get("ms", "300")))

    def get_gate(self, _: dict[str, str]) -> None:
        self.application.gate.wait(60)
        self.reply("open", kind="text/plain")

    def get_covered(self, _: dict[str, str]) -> None:
        self.reply(web_pages.COVERED)

    def get_echo(self, _: dict[str, str]) -> None:
        self.reply(web_pages.ECHO)

    def get_rerender(self, query: dict[str, str]) -> None:
        self.reply(web_pages.rerender(int(query.get("rows", "5"))))

    def get_redirect(self, query: dict[str, str]) -> None:
        self.redirect(query.get("to", "/"))

    def get_big(self, query: dict[str, str]) -> None:
        self.reply(web_pages.big(int(query.get("rows", "500"))))

    def get_state_json(self, _: dict[str, str]) -> None:
        self.reply(json.dumps({"known": bool(self._known())}), kind="application/json")

    def get_favicon_ico(self, _: dict[str, str]) -> None:
        self.reply(b"", kind="image/x-icon")

    def log_message(self, *_: Any) -> None:
        pass
