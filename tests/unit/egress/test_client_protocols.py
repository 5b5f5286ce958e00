"""The ways in: each reaches the server, and each says no in its own language."""

import asyncio
import socket

import pytest

from fakes.egress_harness import SITE, echo, echo_request_target, harness, hello_for, server, use_ports
from fakes.eventually import eventually
from palyra.egress.domain.refusal import OddTarget
from palyra.egress.domain.target import Target
from palyra.egress.protocols.dns import SyntheticNames
from palyra.egress.proxy.client_protocols import connect_target
from palyra.egress.proxy.server import ListeningSocket


async def test_connect_and_socks_reach_the_server() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        by_connect = await stage.connect(f"{SITE}:{port}")
        by_socks, code = await stage.socks(SITE, port)
        assert code == 0
        for client in (by_connect, by_socks):
            await client.send(b"\x00hello")
            assert await client.exactly(6) == b"\x00hello"
            await client.close()
        assert [event.face for event in stage.recorder.connected()] == ["connect", "socks5"]


async def test_bytes_sent_along_with_the_request_are_the_tunnels() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        await client.send(f"CONNECT {SITE}:{port} HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n\0early".encode())
        assert b" 200 " in await client.head()
        assert await client.exactly(6) == b"\x00early"
        await client.close()


async def test_a_server_that_speaks_first_is_heard_before_the_client_speaks() -> None:
    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.write(await reader.readline())
        await reader.read()

    async with server(banner) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        assert await client.exactly(11) == b"220 ready\r\n"
        await client.send(b"HELO me\r\n")
        assert await client.exactly(9) == b"HELO me\r\n"
        await client.close()
        # No HTTP server speaks first.
        odd = await stage.connect(f"{SITE}:{port}")
        assert await odd.exactly(11) == b"220 ready\r\n"
        await odd.send(f"GET / HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode())
        assert await odd.is_reset()
        await odd.close()
        await eventually(stage.recorder.codes)
        assert stage.recorder.codes() == ["egress.malformed_traffic"]


async def test_refusals_in_the_language_of_each_face() -> None:
    async with harness(SITE, "nowhere.test") as stage:
        client, code = await stage.socks("other.test", 443)
        assert code == 2
        await client.close()
        client, code = await stage.socks("nowhere.test", 443)
        assert code == 4
        await client.close()
        client = await stage.client()
        await client.send(b"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 403 ")
        assert b"egress.host_not_allowed" in await client.rest()
        await client.close()
        for nonsense in (b"\x04\x01\x00\x50\x7f\x00\x00\x01\r\n", b"\x16\x03\x01\x00\x05hello\r\n", b"\x05\x01\x09"):
            client = await stage.client()
            await client.send(nonsense)
            client.end()
            await client.rest()
            await client.close()
        await eventually(lambda: len(stage.recorder.codes()) == 6)
        assert stage.recorder.codes()[3:] == ["egress.malformed_traffic"] * 3


class Transparent:
    """A listener on the synthetic address of ``SITE``, at the port where the server really is."""

    def __init__(self, port: int) -> None:
        self.names = SyntheticNames([SITE])
        self.address = self.names.assign(SITE) or ""
        self.port = port
        self.listener = ListeningSocket(kind="transparent", socket=socket.create_server((self.address, port)))


async def test_a_synthetic_address_is_its_name() -> None:
    async with server(echo) as port:
        way = Transparent(port)
        async with harness(f"{SITE}:{port}", names=way.names, listeners=(way.listener,)) as stage:
            reader, writer = await asyncio.open_connection(way.address, port)
            writer.write(b"\x00hello")
            assert await reader.readexactly(6) == b"\x00hello"
            writer.close()
            await eventually(stage.recorder.closed)
            assert stage.recorder.connected()[0].face == "transparent"
            assert stage.recorder.connected()[0].target.host == SITE


async def test_an_address_that_stands_for_nothing_goes_nowhere() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    listener = ListeningSocket(kind="transparent", socket=listening)
    async with harness(SITE, names=SyntheticNames([SITE]), listeners=(listener,)) as stage:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        assert stage.recorder.codes() == ["egress.host_not_allowed"]
        assert stage.recorder.refusals()[0].violation


async def test_on_the_tls_port_nothing_is_dialled_before_the_right_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(echo) as port:
        use_ports(monkeypatch, tls=port)
        way = Transparent(port)
        async with harness(f"{SITE}:{port}", names=way.names, listeners=(way.listener,)) as stage:
            for wrong in (hello_for("other.test"), hello_for(None), b"GET / HTTP/1.1\r\n\r\n"):
                reader, writer = await asyncio.open_connection(way.address, port)
                writer.write(wrong)
                with pytest.raises(ConnectionResetError):
                    await reader.read()
                writer.close()
            assert stage.recorder.connected() == []
            reader, writer = await asyncio.open_connection(way.address, port)
            writer.write(hello_for(SITE))
            assert (await reader.readexactly(1)) == b"\x16"
            writer.close()
        assert stage.recorder.codes() == [
            "egress.server_name_mismatch",
            "egress.server_name_mismatch",
            "egress.malformed_traffic",
        ]


async def test_on_the_http_port_each_request_names_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(echo_request_target) as port:
        use_ports(monkeypatch, http=port)
        way = Transparent(port)
        async with harness(f"{SITE}:{port}", names=way.names, listeners=(way.listener,)) as stage:
            reader, writer = await asyncio.open_connection(way.address, port)
            for _ in range(2):
                writer.write(f"GET / HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode())
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
            writer.write(f"GET / HTTP/1.1\r\nHost: other.test:{port}\r\n\r\n".encode())
            assert b" 403 " in await reader.readuntil(b"\r\n\r\n")
            writer.close()
            assert stage.recorder.codes() == ["egress.host_header_mismatch"]


def test_the_scheme_of_a_tunnel_is_that_of_its_port() -> None:
    assert connect_target("example.com:443") == Target("https", "example.com", 443)
    assert connect_target("example.com:80").scheme == "http"
    assert connect_target("example.com:8443").scheme == "tcp"
    with pytest.raises(OddTarget):
        connect_target("example.com")
