"""TLS on real sockets of this machine, with an authority made here."""

import contextlib
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from fakes.fetch_harness import Authority, FetchHarness, answer
from fakes.loopback import ScriptedServer, read_request
from palyra.egress.client.http_client import CertificateRefused, TlsFailed
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.proxy.dial import Dialler
from palyra.egress.tls import client_context


class LoopbackConnector:
    """The real dialler; every name is this machine."""

    def __init__(self) -> None:
        service = EgressProxyPolicyService(frozenset)
        self._dialler = Dialler(service, self, connect_seconds=5)

    async def resolve(self, host: str) -> tuple[str, ...]:
        return ("127.0.0.1",)

    async def connect(self, grant: Any, target: Any, meter: Any) -> Any:
        return await self._dialler.dial(await self._dialler.pin(grant, target), meter)


def serve(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(answer(b"over tls"))


def harness_for(port: int, ca_file: str, host: str = "a.test") -> FetchHarness:
    rule = f"{host}:{port}"
    return FetchHarness(hosts=(rule,), private=(rule,), connector=LoopbackConnector(), ca_file=ca_file)


async def test_the_certificate_is_checked_against_the_name_while_the_pinned_address_is_dialled(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    names: list[str | None] = []
    context = authority.server_context("a.test")
    context.sni_callback = lambda _tls, name, _context: names.append(name)
    with ScriptedServer([serve], context) as server:
        harness = harness_for(server.port, str(authority.ca_file))
        port = server.port
        outcome, used = await harness.execute(f"https://a.test:{port}/")
    assert outcome.result["text"] == "over tls" and names == ["a.test"]
    receipt = {line["layer"]: line["got"] for line in outcome.receipt}
    assert receipt["tls"] == "TLSv1.3" and receipt["egress"] == f"a.test:{port} at 127.0.0.1"
    # The handshake is traffic too.
    assert used > 500


async def test_an_address_needs_a_certificate_that_names_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with ScriptedServer([serve], authority.server_context("127.0.0.1")) as server:
        harness = harness_for(server.port, str(authority.ca_file), "127.0.0.1")
        assert (await harness.get(f"https://127.0.0.1:{server.port}/"))["text"] == "over tls"


@pytest.mark.parametrize("trusted", [True, False])
async def test_another_hosts_certificate_and_a_strangers_are_refused(tmp_path: Path, trusted: bool) -> None:
    authority = Authority(tmp_path)
    context = authority.server_context("b.test" if trusted else "a.test")
    with ScriptedServer([serve], context) as server:
        harness = harness_for(server.port, str(authority.ca_file) if trusted else "")
        with pytest.raises(CertificateRefused):
            await harness.get(f"https://a.test:{server.port}/")
    assert harness.credentials.asked == []


async def test_old_tls_and_no_tls_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    def plain(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(answer(b"plain"))

    with ScriptedServer([plain]) as server, pytest.raises(TlsFailed):
        await harness_for(server.port, str(authority.ca_file)).get(f"https://a.test:{server.port}/")


def test_the_context_is_strict_and_logs_no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    context = client_context()
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2 and context.keylog_filename is None


async def test_an_end_that_nobody_announced_is_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf")
        # Closes the socket beneath TLS without a word.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)

    def whole(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf")
        assert isinstance(connection, ssl.SSLSocket)
        with contextlib.suppress(OSError):
            connection.unwrap()

    with ScriptedServer([cut, whole], authority.server_context("a.test")) as server:
        harness = harness_for(server.port, str(authority.ca_file))
        first = await harness.get(f"https://a.test:{server.port}/")
        second = await harness.get(f"https://a.test:{server.port}/")
    assert first["text"] == second["text"] == "half"
    assert first["truncated"] and not second["truncated"]
