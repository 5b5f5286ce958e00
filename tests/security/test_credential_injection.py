"""A tool calls an API with a token it never sees: through the real proxy, over real TLS, against servers that show
what they were sent."""

import asyncio
import base64
import contextlib
import datetime
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.certificates import make_certificate
from fakes.eventually import eventually
from fakes.mirror_server import MirrorServer, mirror_server
from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.events import CredentialUsed, EgressEvent, Refused, ResponseRedacted
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.header_rules import OVERRIDES, ForbiddenHeader, accept_headers
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import CredentialMissing, CredentialNotAllowed
from palyra.egress.domain.rules import HostRule
from palyra.egress.domain.target import Target
from palyra.egress.proxy.server import EgressProxy, ListeningSocket
from palyra.egress.proxy.termination import CredentialTermination
from palyra.secret import Secret

pytestmark = pytest.mark.promise("P-secret-unseen")

TOKEN = "tok-7f3a9b2c/with+odd=chars"
HOST, OTHER = "api.test", "other.test"


class Names:
    async def resolve(self, host: str) -> tuple[str, ...]:
        return ("127.0.0.1",)


class Secrets:
    def __init__(self) -> None:
        self.denied = False
        self.values = {"global/token": Secret(TOKEN)}

    async def reveal(self, grant: EgressGrant, secret_ref: str, target: Target) -> Secret:
        if self.denied:
            raise CredentialNotAllowed("policy says no")
        if secret_ref not in self.values:
            raise CredentialMissing(f"no {secret_ref}")
        return self.values[secret_ref]


class Watcher:
    def __init__(self) -> None:
        self.events: list[EgressEvent] = []

    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        self.events.append(event)

    def refusals(self) -> list[str]:
        return [event.refusal.code for event in self.events if isinstance(event, Refused)]


class Harness:
    """An allowed host with a binding, another without, and a client that trusts what a sandboxed program would."""

    def __init__(self, mirror: MirrorServer, other: MirrorServer, port: int, bundle: str, authority: str) -> None:
        self.mirror, self.other, self.port = mirror, other, port
        self.trust = ssl.create_default_context(cadata=bundle)
        self.plain_trust = ssl.create_default_context(cadata=authority)
        self.watcher = Watcher()
        self.secrets = Secrets()

    async def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        host: str = HOST,
    ) -> tuple[int, Mapping[str, str], bytes]:
        return (await self.ask_many([(method, path, headers or {}, body)], host=host))[0]

    async def ask_many(
        self, requests: list[tuple[str, str, Mapping[str, str], bytes | None]], *, host: str = HOST
    ) -> list[tuple[int, Mapping[str, str], bytes]]:
        return await asyncio.to_thread(self._ask, requests, host)

    async def send(self, data: bytes) -> bytes:
        """Send bytes as they are inside the tunnel's TLS. Return everything that comes back."""
        return await asyncio.to_thread(self._send, data)

    def _send(self, data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as sock:
            name = f"{HOST}:{self.mirror.port}"
            sock.sendall(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            assert b" 200 " in sock.recv(4096)
            self.trust.set_alpn_protocols(["h2", "http/1.1"])
            with self.trust.wrap_socket(sock, server_hostname=HOST) as secured:
                assert secured.selected_alpn_protocol() == "http/1.1"
                secured.sendall(data)
                received = b""
                with contextlib.suppress(OSError):
                    while more := secured.recv(65536):
                        received += more
                return received

    def _ask(self, requests: list[tuple[str, str, Mapping[str, str], bytes | None]], host: str) -> list[Any]:
        there = self.mirror if host == HOST else self.other
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.trust, timeout=20)
        connection.set_tunnel(host, there.port)
        answers = []
        try:
            for method, path, headers, body in requests:
                connection.request(method, path, body, dict(headers))
                answer = connection.getresponse()
                answers.append((answer.status, dict(answer.getheaders()), answer.read()))
        finally:
            connection.close()
        return answers


@asynccontextmanager
async def harness(base: Path, *bindings: CredentialBindingPlan, trusted: bool = True) -> AsyncIterator[Harness]:
    make_certificate(base, (HOST, OTHER))
    async with mirror_server(base) as mirror, mirror_server(base) as other:
        rules = (HostRule.parse(f"{HOST}:{mirror.port}"), HostRule.parse(f"{OTHER}:{other.port}"))
        bound = tuple(msgspec.structs.replace(each, hosts=(f"{HOST}:{mirror.port}",)) for each in bindings)
        grant = EgressGrant(
            grant_id="g", principal="agent:a", run="r", call="c", tool="t", rules=rules, private_targets=rules,
            bindings=bound,
        )  # fmt: skip
        listening = socket.create_server(("127.0.0.1", 0))
        authority = (base / "authority.pem").read_text()
        watcher, secrets = Watcher(), Secrets()

        def trust() -> ssl.SSLContext:
            return ssl.create_default_context(cadata=authority) if trusted else ssl.create_default_context()

        termination = CredentialTermination(secrets, trust=trust, now=lambda: datetime.datetime.now(datetime.UTC))
        proxy = EgressProxy(EgressProxyPolicyService(frozenset), Names(), watcher, termination=termination)
        bundle = termination.authority(grant).bundle(authority.encode()).decode()
        it = Harness(mirror, other, listening.getsockname()[1], bundle, authority)
        it.watcher, it.secrets = watcher, secrets
        listener = proxy.open_listener(grant, [ListeningSocket(kind="proxy", socket=listening)])
        try:
            yield it
        finally:
            listener.close()
            proxy.close()
            # The cut tunnels end in the loop's next turns.
            await asyncio.sleep(0.05)


BEARER = CredentialBindingPlan(header_name="Authorization", secret_ref="global/token", hosts=("x",), prefix="Bearer ")


async def test_the_server_gets_the_token_and_the_tool_never_does(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        status, headers, body = await it.ask("GET", "/anything")
        assert status == 200
        assert it.mirror.seen[0][1]["Authorization"] == f"Bearer {TOKEN}"
        assert TOKEN.encode() not in body
        assert TOKEN not in str(headers)
        assert "***" in headers["X-Seen"]
        assert json.loads(body)["headers"]["Authorization"].startswith("Bearer *")
        assert [type(event) for event in it.watcher.events].count(CredentialUsed) == 1
        redacted = [event for event in it.watcher.events if isinstance(event, ResponseRedacted)]
        assert redacted[0].times == 2
        assert TOKEN not in repr(it.watcher.events)


@pytest.mark.parametrize(
    "name", ["Authorization", "authorization", "AUTHORIZATION", "Authorization ", "author\u0131zation"]
)
async def test_the_tools_own_header_does_not_reach_the_server(tmp_path: Path, name: str) -> None:
    async with harness(tmp_path, BEARER) as it:
        try:
            await it.ask("GET", "/", {name: "Bearer mine"})
        except (http.client.HTTPException, ConnectionError, ValueError, UnicodeError):
            # Not a header at all; then nothing went out.
            assert not it.mirror.seen
        for _, headers, _ in it.mirror.seen:
            assert "mine" not in str(headers)


@pytest.mark.parametrize("path", ["/chunked", "/base64", "/until-close"])
async def test_reflections_come_back_redacted(tmp_path: Path, path: str) -> None:
    async with harness(tmp_path, BEARER) as it:
        status, _, body = await it.ask("GET", path)
        assert status == 200
        assert TOKEN.encode() not in body
        assert base64.b64encode(f"user:{TOKEN}".encode())[8:-8] not in body
        assert b"*" in body


async def test_a_redirect_to_another_host_loses_it(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        status, headers, _ = await it.ask("GET", f"/redirect?to=https://{OTHER}/x")
        assert status == 302
        assert "tok-7f3a9b2c" not in headers["Location"]
        await it.ask("GET", "/x", host=OTHER)
        assert "Authorization" not in it.other.seen[0][1]


async def test_a_reply_that_cannot_be_scanned_is_withheld(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        status, _, body = await it.ask("GET", "/gzip", {"Accept-Encoding": "gzip", "Range": "bytes=0-5"})
        assert status == 502
        assert b"egress.unreachable" in body
        _, headers, _ = it.mirror.seen[0]
        assert headers["Accept-Encoding"] == "identity"
        assert "Range" not in headers


async def test_a_second_request_to_another_host_is_refused(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        answers = await it.ask_many([("GET", "/one", {}, None), ("GET", "/two", {"Host": OTHER}, None)])
        assert [status for status, _, _ in answers] == [200, 403]
        assert len(it.mirror.seen) == 1
        assert it.watcher.refusals() == ["egress.host_header_mismatch"]


async def test_many_requests_on_one_connection_and_bodies(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        requests: list[tuple[str, str, Mapping[str, str], bytes | None]] = [
            ("POST", "/a", {}, b"x" * 100_000),
            ("HEAD", "/b", {}, None),
            ("PUT", "/c", {}, b"y"),
            ("GET", "/chunked", {}, None),
            ("GET", "/d", {}, None),
        ]
        answers = await it.ask_many(requests)
        assert [status for status, _, _ in answers] == [200] * 5
        assert [len(body) for _, _, body in it.mirror.seen] == [100_000, 0, 1, 0, 0]
        assert TOKEN not in repr(answers)


async def test_requests_that_the_binding_does_not_cover_get_none(tmp_path: Path) -> None:
    narrow = CredentialBindingPlan(
        header_name="Authorization", secret_ref="global/token", hosts=("x",), methods=("GET",), path_prefix="/v1"
    )
    async with harness(tmp_path, narrow) as it:
        await it.ask_many([("GET", "/v2", {}, None), ("POST", "/v1", {}, b""), ("GET", "/v1/x", {}, None)])
        assert [headers.get("Authorization") for _, headers, _ in it.mirror.seen] == [None, None, TOKEN]


@pytest.mark.parametrize("path", ["/v1/../admin", "/v1/%2e%2e/admin", "/v1//x", "/v1%2fx"])
async def test_a_path_that_servers_read_differently_is_refused(tmp_path: Path, path: str) -> None:
    narrow = CredentialBindingPlan(
        header_name="Authorization", secret_ref="global/token", hosts=("x",), path_prefix="/v1"
    )
    async with harness(tmp_path, narrow) as it:
        status, _, body = await it.ask("GET", path)
        assert status == 403
        assert b"egress.credential_not_allowed" in body
        assert not it.mirror.seen


async def test_a_missing_secret_stops_the_request(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        it.secrets.values.clear()
        status, _, body = await it.ask("GET", "/")
        assert status == 403
        assert b"egress.credential_missing" in body
        assert not it.mirror.seen


async def test_policy_can_refuse_the_use(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        it.secrets.denied = True
        status, _, body = await it.ask("GET", "/")
        assert status == 403
        assert b"egress.credential_not_allowed" in body
        assert not it.mirror.seen


async def test_a_server_that_is_not_who_it_should_be_gets_nothing(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER, trusted=False) as it:
        status, _, body = await it.ask("GET", "/")
        assert status == 502
        assert b"certificate" in body or b"issuer" in body
        assert not it.mirror.seen


async def test_a_placeholder_is_filled_for_its_own_host_only(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        written = {"Authorization": "token {{vault:global/token}}"}
        await it.ask("GET", "/", written)
        assert it.mirror.seen[0][1]["Authorization"] == f"token {TOKEN}"
        await it.ask("GET", "/", written, host=OTHER)
        assert it.other.seen[0][1]["Authorization"] == "token {{vault:global/token}}"


async def test_other_hosts_keep_their_own_tls(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:

        def issuer(host: str, port: int) -> str:
            with socket.create_connection(("127.0.0.1", it.port), timeout=20) as sock:
                sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                assert b"200" in sock.recv(4096)
                with it.trust.wrap_socket(sock, server_hostname=host) as secured:
                    certificate = secured.getpeercert() or {}
                    return str(certificate["issuer"])

        assert "Test authority" in await asyncio.to_thread(issuer, OTHER, it.other.port)
        assert "Palyra run r" in await asyncio.to_thread(issuer, HOST, it.mirror.port)


async def test_a_websocket_to_a_bound_host_is_not_opened(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        status, _, _ = await it.ask("GET", "/", {"Connection": "Upgrade", "Upgrade": "websocket"})
        assert status == 200
        assert "Upgrade" not in it.mirror.seen[0][1]


FAMILY = ("X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix", "X-Forwarded-Uri", "X-Forwarded-Method")
SPELLINGS = ("X-HTTP-Method-Override", "x_http_method_override", "X.HTTP.Method.Override", "X-Http_Method-oVERRIDE")


async def test_no_secret_goes_with_a_request_that_says_it_is_another_one(tmp_path: Path) -> None:
    narrow = CredentialBindingPlan(
        header_name="Authorization", secret_ref="global/token", hosts=("x",), methods=("GET",), path_prefix="/v1"
    )
    names = (*OVERRIDES, *FAMILY, *SPELLINGS, "Destination")
    async with harness(tmp_path, narrow) as it:
        for name in names:
            for value in ("DELETE", ""):
                status, _, body = await it.ask("GET", "/v1/x", {name: value})
                assert (status, b"egress.request_overridden" in body) == (403, True), name
        assert not it.mirror.seen
        assert it.watcher.refusals() == ["egress.request_overridden"] * 2 * len(names)
        # What gets no secret is the program's own affair, and so is a host without a binding.
        await it.ask("POST", "/v2", {"X-HTTP-Method-Override": "GET"}, b"")
        await it.ask("GET", "/v1/x", {"X-HTTP-Method-Override": "DELETE"}, host=OTHER)
        assert [headers.get("Authorization") for _, headers, _ in it.mirror.seen] == [None]
        assert it.other.seen[0][1]["X-HTTP-Method-Override"] == "DELETE"


@pytest.mark.parametrize("name", (*OVERRIDES, *FAMILY, *SPELLINGS))
def test_the_table_of_overrides_is_the_one_of_http_fetch_and_of_skills(name: str) -> None:
    with pytest.raises(ForbiddenHeader):
        accept_headers({name: "x"})


@pytest.mark.parametrize(
    "query", ["_method=DELETE", "a=1&_method=PUT", "a=1;%5Fmethod=PUT", "_HttpMethod=PATCH", "_method[]=PUT", "_METHOD"]
)
async def test_no_secret_for_one_method_goes_with_a_query_that_names_another(tmp_path: Path, query: str) -> None:
    narrow = CredentialBindingPlan(
        header_name="Authorization", secret_ref="global/token", hosts=("x",), methods=("GET", "POST")
    )
    async with harness(tmp_path, narrow) as it:
        status, _, body = await it.ask("POST", f"/v1?{query}", {}, b"")
        assert status == 403
        assert b"egress.request_overridden" in body
        assert not it.mirror.seen


HEAD = f"Host: {HOST}:%d\r\nConnection: close\r\n"
RAW = {
    "in upper case": "GET / HTTP/1.1\r\n{head}X-HTTP-METHOD-OVERRIDE: PUT\r\n\r\n",
    "without a space": "GET / HTTP/1.1\r\n{head}X-HTTP-Method-Override:PUT\r\n\r\n",
    "with space before the colon": "GET / HTTP/1.1\r\n{head}X-HTTP-Method-Override : PUT\r\n\r\n",
    "behind a space": "GET / HTTP/1.1\r\n{head} X-HTTP-Method-Override: PUT\r\n\r\n",
    "folded": "GET / HTTP/1.1\r\n{head}X-A: a\r\n\tX-HTTP-Method-Override: PUT\r\n\r\n",
    "behind a bare line end": "GET / HTTP/1.1\r\n{head}X-A: a\nX-HTTP-Method-Override: PUT\r\n\r\n",
    "twice": "GET / HTTP/1.1\r\n{head}X-Original-URL: /\r\nX-Original-URL: /admin\r\n\r\n",
    "before the host": "GET / HTTP/1.1\r\nX-Rewrite-URL: /admin\r\n{head}\r\n",
    "in HTTP/1.0": "GET / HTTP/1.0\r\n{head}X-Rewrite-URL: /admin\r\n\r\n",
    "in a trailer": "POST / HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\nTrailer: X-HTTP-Method-Override\r\n\r\n"
    "0\r\nX-HTTP-Method-Override: PUT\r\n\r\n",
    "in HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "in an absolute target": "GET https://other.test/ HTTP/1.1\r\n{head}\r\n",
    "for another host": "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
    "for two hosts": "GET / HTTP/1.1\r\n{head}Host: other.test\r\n\r\n",
}


@pytest.mark.parametrize("how", RAW)
async def test_an_override_is_refused_however_it_is_written(tmp_path: Path, how: str) -> None:
    async with harness(tmp_path, BEARER) as it:
        answer = await it.send(RAW[how].replace("{head}", HEAD % it.mirror.port).encode())
        assert answer.split(b" ", 2)[1] in (b"400", b"403"), answer
        # The head of a chunked request may have gone out before its trailer came, and without an end.
        assert not it.mirror.seen or how == "in a trailer"
        assert await eventually(it.watcher.refusals)
        assert TOKEN.encode() not in answer


async def test_an_override_in_the_second_request_of_a_connection_is_refused(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        answers = await it.ask_many([("GET", "/one", {}, None), ("GET", "/two", {"X-Original-URL": "/admin"}, None)])
        assert [status for status, _, _ in answers] == [200, 403]
        assert [line for line, _, _ in it.mirror.seen] == ["GET /one HTTP/1.1"]


async def test_a_header_that_the_connection_names_does_not_go_out(tmp_path: Path) -> None:
    async with harness(tmp_path, BEARER) as it:
        await it.ask("GET", "/", {"Connection": "X-Original-URL", "X-Original-URL": "/admin"})
        assert "X-Original-URL" not in it.mirror.seen[0][1]
