"""TLS over our own stream: against itself, and against OpenSSL's ordinary sockets."""

import asyncio
import datetime
import socket
import ssl

import pytest

from palyra.egress.domain.refusal import HandshakeTimeout, MalformedTraffic
from palyra.egress.proxy.run_authority import RunAuthority
from palyra.egress.proxy.socket_stream import SocketStream
from palyra.egress.proxy.termination import ProxyTlsStream

HOST = "api.example.com"


@pytest.fixture(scope="module")
def authority() -> RunAuthority:
    return RunAuthority("test", (HOST,), now=datetime.datetime.now(datetime.UTC))


def pair() -> tuple[SocketStream, SocketStream]:
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    return SocketStream(one, loop), SocketStream(other, loop)


async def joined(authority: RunAuthority) -> tuple[ProxyTlsStream, ProxyTlsStream]:
    near, far = pair()
    client = ProxyTlsStream(
        near, ssl.create_default_context(cadata=authority.pem().decode()), server_side=False, server_name=HOST
    )
    server = ProxyTlsStream(far, authority.context_for(HOST), server_side=True)
    await asyncio.gather(client.handshake(), server.handshake())
    return client, server


async def test_both_directions_at_once(authority: RunAuthority) -> None:
    client, server = await joined(authority)
    sizes = 3 * 1024 * 1024

    async def drain(stream: ProxyTlsStream) -> int:
        total = 0
        while data := await stream.read():
            total += len(data)
        return total

    async def send(stream: ProxyTlsStream) -> None:
        await stream.write(b"x" * sizes)
        stream.end_writing()

    got = await asyncio.gather(send(client), send(server), drain(client), drain(server))
    assert got[2:] == [sizes, sizes]
    client.close()
    server.close()


async def test_bytes_that_were_read_before_belong_to_it(authority: RunAuthority) -> None:
    near, far = pair()
    client = ProxyTlsStream(
        near, ssl.create_default_context(cadata=authority.pem().decode()), server_side=False, server_name=HOST
    )

    async def serve() -> bytes:
        hello = await far.read()
        far.unread(hello)
        server = ProxyTlsStream(far, authority.context_for(HOST), server_side=True)
        await server.handshake()
        return await server.read()

    async def ask() -> None:
        await client.handshake()
        await client.write(b"hello")

    got, _ = await asyncio.gather(serve(), ask())
    assert got == b"hello"
    near.close()
    far.close()


async def test_a_client_that_does_not_trust_us_is_named_as_such(authority: RunAuthority) -> None:
    near, far = pair()
    client = ProxyTlsStream(near, ssl.create_default_context(), server_side=False, server_name=HOST)
    server = ProxyTlsStream(far, authority.context_for(HOST), server_side=True)
    results = await asyncio.gather(client.handshake(), server.handshake(), return_exceptions=True)
    assert all(isinstance(result, MalformedTraffic) for result in results)
    near.close()
    far.close()


async def test_what_is_no_tls_is_refused(authority: RunAuthority) -> None:
    near, far = pair()
    await near.write(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(MalformedTraffic, match="handshake failed"):
        await ProxyTlsStream(far, authority.context_for(HOST), server_side=True).handshake()
    near.close()
    far.close()


async def test_a_peer_that_is_silent_is_not_waited_for(authority: RunAuthority) -> None:
    near, far = pair()
    with pytest.raises(HandshakeTimeout):
        await ProxyTlsStream(far, authority.context_for(HOST), server_side=True).handshake(seconds=0.05)
    near.close()
    far.close()


async def test_a_flipped_bit_ends_the_stream(authority: RunAuthority) -> None:
    client, server = await joined(authority)
    await client.write(b"good")
    assert await server.read() == b"good"
    await client.inner.write(b"\x17\x03\x03\x00\x20" + b"\0" * 32)
    with pytest.raises(MalformedTraffic, match="broken TLS"):
        await server.read()
    client.close()
    server.close()


async def test_an_end_without_goodbye_is_an_end(authority: RunAuthority) -> None:
    client, server = await joined(authority)
    await server.write(b"x")
    # With it come the session tickets: closing with bytes unread would reset the connection.
    assert await client.read() == b"x"
    client.close()
    assert await server.read() == b""
    server.close()
