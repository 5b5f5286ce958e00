"""How a tunnel ends, and who is told."""

import asyncio
import logging
import socket
import struct

import pytest

from fakes.egress_harness import SITE, echo, echo_request_target, harness, hello_for, server
from fakes.eventually import eventually
from palyra.egress.domain.events import CredentialUsed
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.refusal import CredentialMissing
from palyra.egress.domain.target import Target
from palyra.egress.limits import ProxyLimits
from palyra.egress.protocols.tunnel_opening import Opening
from palyra.egress.proxy.tunnel import Tunnel

# Long enough for a busy machine to finish an honest handshake.
QUICK = ProxyLimits(handshake_seconds=0.5, idle_seconds=0.7, sweep_seconds=0.01)


async def test_an_ordinary_life() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(b"\x00" * 100)
        client.end()
        assert await client.rest() == b"\x00" * 100
        await client.close()
        await eventually(stage.recorder.closed)
        closed = stage.recorder.closed()[0]
        assert (closed.target.host, closed.up, closed.down, closed.reason) == (SITE, 100, 100, "done")
        assert stage.proxy.tunnels == 0


@pytest.mark.parametrize("begun", [b"\x05", b"GET http://site.test/ HT", b"\x05\x01\x00\x05\x01"])
async def test_a_client_that_does_not_finish_its_request_is_cut(begun: bytes) -> None:
    async with harness(SITE, limits=QUICK) as stage:
        client = await stage.client()
        await client.send(begun)
        assert await client.rest() in (b"", b"\x05\x00")
        await client.close()
        assert stage.recorder.codes() == ["egress.handshake_timeout"]
        assert not stage.recorder.refusals()[0].violation


async def test_dripping_bytes_does_not_stretch_the_handshake() -> None:
    async with harness(SITE, limits=QUICK) as stage:
        client = await stage.client()
        with pytest.raises(ConnectionError):
            for byte in b"CONNECT " + b"a" * 10_000:
                await client.send(bytes((byte,)))
                await asyncio.sleep(0.01)
        await client.close()
        assert stage.recorder.codes() == ["egress.handshake_timeout"]


async def test_half_a_hello_inside_a_tunnel_is_cut_too() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}", limits=QUICK) as stage:
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(hello_for(SITE)[:20])
        assert await client.is_reset()
        await client.close()
        await eventually(stage.recorder.codes)
        assert stage.recorder.codes() == ["egress.handshake_timeout"]
        assert stage.recorder.closed()[0].up == 0


async def test_a_tunnel_on_which_nothing_moves_is_cut_and_one_that_moves_is_not() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}", limits=QUICK) as stage:
        idle, busy = await stage.connect(f"{SITE}:{port}"), await stage.connect(f"{SITE}:{port}")
        while not stage.recorder.codes():
            await busy.send(b"\x00")
            assert await busy.exactly(1) == b"\x00"
            await asyncio.sleep(0.01)
        assert stage.recorder.codes() == ["egress.idle_timeout"]
        assert await idle.is_reset()
        await busy.close()
        await idle.close()


async def test_a_server_that_breaks_off_breaks_the_clients_connection_too() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with server(rude) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(b"\x00\x00\x00")
        assert await client.is_reset()
        await client.close()
        await eventually(stage.recorder.closed)
        assert stage.recorder.closed()[0].reason == "broken"


class Reading:
    """A termination that answers itself."""

    def __init__(self) -> None:
        self.seen: list[tuple[Opening, bytes, bool]] = []

    def wants(self, grant: EgressGrant, target: Target) -> bool:
        return target.host == SITE

    async def serve(self, tunnel: Tunnel, opening: Opening, *, one_request: bool) -> None:
        data = await tunnel.client.read()
        self.seen.append((opening, data, one_request))
        if b"refuse" in data:
            raise CredentialMissing("none", **tunnel.where())
        assert tunnel.target is not None
        tunnel.report(
            CredentialUsed(target=tunnel.target, secret_ref="global/k", header_name="X", method="GET", path="/")
        )
        upstream = await tunnel.connect()
        await upstream.write(b"\x00instead")
        await tunnel.client.write(await upstream.read())


async def test_a_termination_gets_the_whole_opening_and_the_judged_connection() -> None:
    reading = Reading()
    async with server(echo) as port, harness(f"{SITE}:{port}", termination=reading) as stage:
        client = await stage.connect(f"{SITE}:{port}")
        hello = hello_for(SITE)
        await client.send(hello[:50])
        await client.send(hello[50:])
        assert await client.exactly(8) == b"\x00instead"
        await client.close()
        by_url = await stage.client()
        await by_url.send(f"GET http://{SITE}:{port}/x HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode())
        assert await by_url.exactly(8) == b"\x00instead"
        await by_url.close()
        assert [(kind, one) for kind, _, one in reading.seen] == [(Opening.TLS, False), (Opening.HTTP, True)]
        assert reading.seen[0][1] == hello
        assert reading.seen[1][1].startswith(b"GET /x HTTP/1.1\r\n")
        assert stage.listener.usage().credential_uses == 2
        assert stage.listener.usage().bytes_up == 16


async def test_a_hello_for_another_host_never_reaches_the_termination() -> None:
    reading = Reading()
    async with server(echo) as port, harness(f"{SITE}:{port}", termination=reading) as stage:
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(hello_for("other.test"))
        assert await client.is_reset()
        await client.close()
        assert reading.seen == []
        assert stage.recorder.codes() == ["egress.server_name_mismatch"]
        assert stage.recorder.connected() == []


async def test_a_fault_of_ours_ends_one_tunnel_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Reading):
        async def serve(self, tunnel: Tunnel, opening: Opening, *, one_request: bool) -> None:
            raise ZeroDivisionError

    async with server(echo_request_target) as port, harness(f"{SITE}:{port}", termination=Broken()) as stage:
        with caplog.at_level(logging.ERROR):
            client = await stage.connect(f"{SITE}:{port}")
            await client.send(hello_for(SITE))
            assert await client.is_reset()
            await client.close()
        assert "fault" in caplog.text
        assert stage.proxy.tunnels == 0
