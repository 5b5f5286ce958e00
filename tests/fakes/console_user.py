"""The console in the test's own process: a console user with a cookie, or whatever an attacker sends instead."""

import asyncio
import json
import re
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any

from fakes.gateway_harness import GatewayHarness
from fakes.raw_http import RawAnswer, ask, make_token, operator
from palyra.daemon.console_wiring import build_console
from palyra.identity.api_tokens import TokenScope

ORIGIN = "http://localhost"


class ConsoleUser:
    """A browser without a screen: keeps the cookie, sends what our pages send."""

    def __init__(self, harness: GatewayHarness, app: Any = None) -> None:
        self.harness = harness
        self.app = app or build_console(harness.gateway)
        self.cookie = ""
        self.csrf = ""
        self._keys = 0

    async def log_in(self, token: str) -> RawAnswer:
        got = await self.send("POST", "/console/v1/session", {"token": token})
        if got.status == 201:
            jar = SimpleCookie(got.headers["set-cookie"])
            self.cookie = f"palyra_session={jar['palyra_session'].value}"
            self.csrf = got.data["csrf"]
        return got

    async def get(self, path: str, **headers: str) -> RawAnswer:
        return await ask(self.app, "GET", path, headers=self._headers({"accept": "text/html", **headers}))

    async def page(self, path: str) -> str:
        got = await self.get(path)
        assert got.status == 200, (got.status, got.body[:2000])
        return got.body.decode()

    async def data(self, path: str) -> Any:
        return (await self.get(path, accept="application/json")).data

    async def yes_to(self, decision: str, **scope: Any) -> dict[str, Any]:
        """What the form of a request sends: with the digest that was shown, and the words of a wider yes."""
        approval = decision.split("/")[4]
        (digest,) = set(re.findall(r'name="argument_digest" value="(\w+)"', await self.page(f"/approvals/{approval}")))
        body = {"decision": "approve", "argument_digest": digest, **scope}
        if scope:
            said = await self.post(f"/console/v1/approvals/{approval}/meaning", scope)
            body["meaning"] = said.data["meaning"]
        return body

    async def post(self, path: str, body: object = None, **headers: str) -> RawAnswer:
        return await self.send("POST", path, {} if body is None else body, **headers)

    async def send(self, method: str, path: str, body: object, **headers: str) -> RawAnswer:
        sent = {"content-type": "application/json", "origin": ORIGIN, "palyra-csrf": self.csrf, **headers}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await ask(self.app, method, path, body=content, headers=self._headers(sent))

    def _headers(self, given: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        sent = {"cookie": self.cookie, **{name.replace("_", "-"): value for name, value in given.items()}}
        return [(name.encode(), value.encode("latin-1")) for name, value in sent.items() if value]


async def console_user(harness: GatewayHarness, principal: str = "user:operator") -> ConsoleUser:
    """Somebody who is logged in: an operator, or with another principal whoever the settings say."""
    made = ConsoleUser(harness)
    token = await (
        operator(harness) if principal == "user:operator" else make_token(harness, principal, TokenScope.CALL)
    )
    got = await made.log_in(token)
    assert got.status == 201, got.body
    return made


async def listen(known: ConsoleUser, starts: list[asyncio.Event]) -> None:
    """Follows the news like an open page; notes when the first of it came."""
    begun = asyncio.Event()
    starts.append(begun)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/console/v1/events",
        "raw_path": b"/console/v1/events",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"cookie", known.cookie.encode())],
        "server": ("127.0.0.1", 7142),
        "client": ("127.0.0.1", 40000),
    }

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            begun.set()

    await known.app(scope, receive, send)
