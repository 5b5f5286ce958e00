import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fakes.egress_harness import SITE, echo, harness, server
from fakes.eventually import eventually
from palyra.egress.domain.refusal import OddTarget
from palyra.egress.proxy.dial import BadUpstream, Upstream


@contextlib.asynccontextmanager
async def upstream_connect(asked: list[bytes], answer: bytes, port_of: int) -> AsyncIterator[int]:
    """An HTTP proxy that connects to the port it is told to, on loopback, after its answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if b" 200 " in answer:
            await bridge(reader, writer, port_of)

    async with server(serve) as port:
        yield port


async def bridge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.write_eof()

    try:
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
    finally:
        far_writer.close()


async def test_the_judged_address_goes_to_an_upstream_connect_proxy_not_the_name() -> None:
    asked: list[bytes] = []
    async with server(echo) as port, upstream_connect(asked, b"HTTP/1.1 200 OK\r\n\r\nearly", port) as via:
        upstream = Upstream.parse(f"http://127.0.0.1:{via}")
        async with harness(f"{SITE}:{port}", upstream=upstream) as stage:
            client = await stage.connect(f"{SITE}:{port}")
            assert await client.exactly(5) == b"early"
            await client.send(b"\x00through")
            assert await client.exactly(8) == b"\x00through"
            client.end()
            assert await client.rest() == b""
            await client.close()
            await eventually(stage.recorder.closed)
            assert stage.recorder.connected()[0].address == "127.0.0.1"
            assert (stage.recorder.closed()[0].up, stage.recorder.closed()[0].down) == (8, 13)
    head = asked[0].decode()
    assert head.startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n")
    assert SITE not in head


async def test_names_are_judged_before_the_upstream_is_asked() -> None:
    asked: list[bytes] = []
    async with upstream_connect(asked, b"HTTP/1.1 200 OK\r\n\r\n", 1) as via:
        upstream = Upstream.parse(f"http://127.0.0.1:{via}")
        async with harness(SITE, upstream=upstream) as stage:
            client = await stage.client()
            await client.send(b"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n")
            assert b" 403 " in await client.head()
            await client.close()
            assert stage.recorder.codes() == ["egress.host_not_allowed"]
    assert asked == []


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 403 No\r\n\r\n", b"HTTP/1.1 407 Who\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\n"],
)
async def test_an_upstream_that_does_not_connect_is_told_of_as_unreachable(answer: bytes) -> None:
    async with upstream_connect([], answer, 1) as via:
        upstream = Upstream.parse(f"http://127.0.0.1:{via}")
        async with harness(SITE, upstream=upstream) as stage:
            client = await stage.client()
            await client.send(f"CONNECT {SITE}:443 HTTP/1.1\r\nHost: {SITE}:443\r\n\r\n".encode())
            assert b" 502 " in await client.head()
            await client.close()
            assert stage.recorder.codes() == ["egress.unreachable"]


@pytest.mark.parametrize("with_names", [False, True])
async def test_a_socks_upstream_gets_the_address_or_on_request_the_name(with_names: bool) -> None:
    asked: list[bytes] = []

    async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readexactly(3))
        writer.write(b"\x05" + asked[-1][2:3])
        asked.append(await reader.readexactly(4))
        length = {1: 4, 4: 16}.get(asked[-1][3]) or (await reader.readexactly(1))[0]
        asked.append(await reader.readexactly(length + 2))
        writer.write(b"\x05\x00\x00\x03\x04abcd\x00\x01")
        await bridge(reader, writer, int.from_bytes(asked[-1][-2:], "big"))

    async with server(echo) as port, server(socks) as via:
        scheme = "socks5h" if with_names else "socks5"
        upstream = Upstream.parse(f"{scheme}://127.0.0.1:{via}")
        async with harness(f"{SITE}:{port}", upstream=upstream) as stage:
            client = await stage.connect(f"{SITE}:{port}")
            await client.send(b"\x00hi")
            assert await client.exactly(3) == b"\x00hi"
            await client.close()
            assert stage.resolver.asked == ["127.0.0.1"] if with_names else [SITE, "127.0.0.1"]
    assert asked[2][:-2] == (SITE.encode() if with_names else bytes((127, 0, 0, 1)))


async def test_a_socks_upstream_that_refuses() -> None:
    async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"\x05\x00")
        await reader.readexactly(10)
        writer.write(b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00")

    async with server(socks) as via, harness(SITE, upstream=Upstream.parse(f"socks5://127.0.0.1:{via}")) as stage:
        client, code = await stage.socks(SITE, 443)
        assert code == 4
        await client.close()
        assert "connection refused" in stage.recorder.refusals()[0].refusal.detail


@pytest.mark.parametrize("raw", ["proxy:3128", "ftp://proxy:1", "http://user@proxy:1", "http://proxy:1/path", ""])
def test_what_is_no_upstream(raw: str) -> None:
    with pytest.raises((BadUpstream, OddTarget)):
        Upstream.parse(raw)
