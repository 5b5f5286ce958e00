"""Attacks by what comes back from a host with a credential: whole and searched, or not at all."""

import asyncio
import base64
import contextlib
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fakes.bound_host_harness import OWN, TOKEN, binding, plan_of, profile_of, put, sandboxed, settings
from fakes.fetch_harness import Authority, answer
from fakes.gateway_harness import open_harness
from fakes.loopback import ScriptedServer, read_request
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.injection import ResponseScan, inject, list_encodings, plan_injection, secret_patterns
from palyra.egress.domain.target import Target
from palyra.executors.network.service import BUNDLE_PATH
from palyra.secret import Secret

pytestmark = pytest.mark.promise("P-secret-unseen")

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("wanted", ["auto", "raw_base64"])
async def test_a_fetch_brings_nothing_back_that_could_not_be_searched(tmp_path: Path, wanted: str) -> None:
    packed = b"\x0b\x02\x80" + TOKEN[::-1].encode()

    def script(connection: socket.socket) -> None:
        read_request(connection)
        length = str(len(packed)).encode()
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: " + length + b"\r\n\r\n" + packed
        )

    with ScriptedServer([script]) as server:
        async with open_harness(tmp_path, settings(server.port)) as harness:
            await put(harness)
            record = await harness.call("http.fetch", {"url": f"http://api.test:{server.port}/", "format": wanted})
            assert record.error is not None and record.error["code"] == "fetch.unknown_encoding"
            assert base64.b64encode(packed).decode() not in str(record)


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_secret_that_begins_with_another_is_overwritten_whole_wherever_it_is_cut(cut: int) -> None:
    short, long = b"token-1", b"token-1-and-its-secret-rest"
    reader = ResponseScan((long, short))
    text = b"<" + long + b">"
    got = reader.receive(text[:cut]) + reader.receive(text[cut:]) + reader.finish()
    assert got == b"<" + b"*" * len(long) + b">" and reader.times == 1


def test_secrets_that_overlap_are_both_overwritten() -> None:
    reader = ResponseScan((b"secret-abc-123", b"123-xyz-secret"))
    text = b"secret-abc-123-xyz-secret"
    assert b"".join([*(reader.receive(bytes([byte])) for byte in text), reader.finish()]) == b"*" * len(text)


@pytest.mark.parametrize(
    "written", ["Basic  {{vault:%s}}", "bAsIc\t{{vault:%s}}", "Basic {{vault:%s}} ", "{{vault:%s}}"]
)
def test_the_tools_spelling_of_basic_does_not_hide_the_password(written: str) -> None:
    value = base64.b64encode(b"admin:correct-horse").decode()
    grant = EgressGrant(
        grant_id="g", principal="agent:bot", run="r", call="c", tool="t", rules=(),
        bindings=(msgspec.convert(binding(443, hosts=["api.test"], prefix=""), _binding_type()),),
    )  # fmt: skip
    headers = (("Authorization", written % OWN),)
    plan = plan_injection(grant, Target.from_url("https://api.test/"), "GET", "/", headers)
    values = {OWN: Secret(value)}
    assert value in dict(inject(plan, values))["Authorization"]
    assert b"correct-horse" not in ResponseScan(secret_patterns(plan, values)).whole(b"you are admin:correct-horse")


def _binding_type() -> Any:
    from palyra.egress.domain.credential import CredentialBindingPlan

    return CredentialBindingPlan


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_a_reply_in_another_charset_does_not_hide_the_secret(codec: str) -> None:
    said = f"you sent {TOKEN}".encode(codec)
    assert TOKEN not in ResponseScan(list_encodings(TOKEN)).whole(said).decode(codec)


@pytest.mark.parametrize(
    ("reply", "method"),
    [
        (OK + b"X-%b: 1\r\nContent-Length: 0\r\n\r\n", "GET"),
        (OK + b"X-Seen: %b\r\nContent-Length: 5\r\n\r\n", "HEAD"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: <%b>\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", "GET"),
        (b"HTTP/1.1 304 %b\r\nETag: \"%b\"\r\n\r\n", "GET"),
        (b"HTTP/1.1 204 No\r\nX-Seen: %b\r\n\r\n", "GET"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Trailer: %b\r\n\r\n", "GET"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3;a=%b\r\nabc\r\n0\r\n\r\n", "GET"),
        (b"HTTP/1.0 200 OK\r\n\r\n%b", "GET"),
        (OK + b"Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nX-Seen: %b\r\nContent-Length: 0\r\n\r\n", "GET"),
        (OK + b"Content-Length: 5\r\n\r\nhello%b", "GET"),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\nX-Seen: %b\r\n\r\nhello", "GET"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n%b", "GET"),
        (b"%b\r\n\r\n", "GET"),
    ],
)  # fmt: skip
async def test_no_part_of_a_reply_gives_the_secret_back(tmp_path: Path, reply: bytes, method: str) -> None:
    async with sandboxed(tmp_path) as it:
        it.replies = [reply.replace(b"%b", TOKEN.encode())]
        asks = "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\n" if method == "GET" else ""
        got = await it.get("/until-close", asks, method)
        assert f"Authorization: Bearer {TOKEN}".encode() in it.received[0]
        assert got.startswith(b"HTTP/1.1 ") and TOKEN.encode() not in got


async def test_an_answer_that_somebody_on_the_way_cut_off_does_not_look_whole(tmp_path: Path) -> None:
    """TLS tells a client so; a proxy that ends TLS in between must not lose it."""
    authority = Authority(tmp_path)

    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(OK + b"Connection: close\r\n\r\nthe order is cancelled")
        socket.socket(fileno=connection.detach()).close()

    with ScriptedServer([cut], authority.server_context("api.test")) as server:
        tree = settings(server.port, ca_file=str(authority.ca_file))
        async with open_harness(tmp_path, tree) as harness:
            await put(harness)
            plan = plan_of(harness)
            profile, listener = harness.gateway.egress.prepare_listener(
                plan, profile_of(harness, f"api.test:{server.port}")
            )
            assert listener is not None
            listening = socket.create_server(("127.0.0.1", 0))
            kind = SimpleNamespace(kind=SimpleNamespace(value="proxy"))
            sockets: Any = [SimpleNamespace(plan=kind, socket=listening)]
            await listener.serve(sockets)
            bundle = dict(profile.extra_files)[BUNDLE_PATH].decode()
            with pytest.raises((OSError, ssl.SSLError)):
                await asyncio.to_thread(_read_all, listening.getsockname(), server.port, bundle)
            await listener.close()
            assert "egress.refused" in harness.kinds(call="c1")


async def test_keys_of_a_connection_that_carries_a_secret_are_logged_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has them reads the secret off the wire. The environment asks for them; the client logs none."""
    authority, received, keys = Authority(tmp_path), [], tmp_path / "keys"

    def reply(connection: socket.socket) -> None:
        received.append(read_request(connection))
        connection.sendall(OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok")
        with contextlib.suppress(OSError):
            cast("ssl.SSLSocket", connection).unwrap()

    context = authority.server_context("api.test")
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    with ScriptedServer([reply], context) as server:
        async with open_harness(tmp_path, settings(server.port, ca_file=str(authority.ca_file))) as harness:
            await put(harness)
            profile, listener = harness.gateway.egress.prepare_listener(
                plan_of(harness), profile_of(harness, f"api.test:{server.port}")
            )
            assert listener is not None
            listening = socket.create_server(("127.0.0.1", 0))
            kind = SimpleNamespace(kind=SimpleNamespace(value="proxy"))
            sockets: Any = [SimpleNamespace(plan=kind, socket=listening)]
            await listener.serve(sockets)
            bundle = dict(profile.extra_files)[BUNDLE_PATH].decode()
            got = await asyncio.to_thread(_read_all, listening.getsockname(), server.port, bundle)
            await listener.close()
    assert got.endswith(b"ok") and TOKEN.encode() in received[0]
    assert not keys.exists() or keys.read_bytes() == b""


def _read_all(proxy: Any, port: int, bundle: str) -> bytes:
    """Raises where TLS does not say that the answer is at its end."""
    host = f"api.test:{port}"
    with socket.create_connection(proxy, timeout=20) as plain:
        plain.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert plain.recv(1000).startswith(b"HTTP/1.1 200")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=bundle)
        with context.wrap_socket(plain, server_hostname="api.test", suppress_ragged_eofs=False) as secured:
            secured.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            received = b""
            while data := secured.recv(65536):
                received += data
            return received


@pytest.mark.parametrize("wanted", ["auto", "raw_base64", "text"])
async def test_a_budget_that_ends_in_the_middle_of_a_secret_gives_no_half_of_it(tmp_path: Path, wanted: str) -> None:
    """Whoever opens a run chooses its budget, and with it the byte at which a reply that repeats the key breaks off."""
    said = answer(b"you sent " + TOKEN.encode(), length=1000)
    sent: list[bytes] = []

    def script(connection: socket.socket) -> None:
        sent.append(read_request(connection))
        connection.sendall(said)
        connection.recv(1)

    with ScriptedServer([script, script]) as server:
        async with open_harness(tmp_path, settings(server.port)) as harness:
            await put(harness)
            arguments = {"url": f"http://api.test:{server.port}/", "format": wanted, "timeout_ms": 1500}
            run = await harness.open_run(egress_bytes=100_000)
            await harness.call("http.fetch", arguments, run_id=run)
            run = await harness.open_run(egress_bytes=len(sent[0]) + len(said) - 1)
            record = await harness.call("http.fetch", arguments, run_id=run)
            assert record.result is not None and record.result["truncated"]
            got = record.result.get("text") or base64.b64decode(record.result["base64"]).decode()
            assert got.startswith("you sent") and TOKEN[:4] not in got
