"""The listener itself: several services behind one certificate that changes, and ports."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.identity_harness import ACTOR
from fakes.node_server_harness import PATIENCE, NodeServerHarness, open_harness
from palyra.devicelink.limits import MAX_CONNECTIONS
from palyra.devicelink.server.listener import DeviceListener, DevicePortTaken, connections_within


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[NodeServerHarness]:
    async with open_harness(tmp_path) as opened:
        yield opened


def echo_service(name: str) -> Any:
    async def echo(request: bytes, _context: Any) -> bytes:
        return name.encode() + request

    def add(server: Any) -> None:
        handler = grpc.unary_unary_rpc_method_handler(echo)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Echo": handler}),))

    return add


async def test_several_services_share_one_listener(harness: NodeServerHarness) -> None:
    listener = DeviceListener(harness.identities, "127.0.0.1")
    port = await listener.start([echo_service("first.v1"), echo_service("second.v1")], [0])
    device = await harness.pair()
    device.connect(port)
    for name in ("first.v1", "second.v1"):
        call = device.channels[-1].unary_unary(f"/{name}/Echo")
        assert await call(b" hi", timeout=PATIENCE) == name.encode() + b" hi"
    await device.close()
    await listener.stop(None)
    await listener.stop(None)


async def test_the_next_handshake_shows_the_newest_certificate(harness: NodeServerHarness) -> None:
    def handshake() -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        import hashlib

        with (
            socket.create_connection(("127.0.0.1", harness.port), timeout=PATIENCE) as raw,
            context.wrap_socket(raw, server_hostname="palyra") as tls,
        ):
            return hashlib.sha256(tls.getpeercert(binary_form=True) or b"").hexdigest()

    before = await asyncio.to_thread(handshake)
    assert before == harness.identities.server_certificate().fingerprint
    assert await asyncio.to_thread(handshake) == before
    harness.identities.name_server(["other.example"])
    after = await asyncio.to_thread(handshake)
    assert after != before and after == harness.identities.server_certificate().fingerprint
    await harness.identities.rotate_authority(actor=ACTOR)
    assert await asyncio.to_thread(handshake) not in (before, after)


async def test_a_renewal_that_fails_does_not_end_the_listener(harness: NodeServerHarness) -> None:
    device = await harness.pair()
    harness.identities.server_certificate = partial(_broken)  # type: ignore[method-assign]
    device.connect()
    assert (await device.register()).protocol_version == 1
    await device.close()


def _broken() -> Any:
    raise RuntimeError("no")


async def test_the_first_free_port_is_taken_and_none_is_shared(harness: NodeServerHarness) -> None:
    taken = harness.port
    listener = DeviceListener(harness.identities, "127.0.0.1")
    with pytest.raises(DevicePortTaken):
        await listener.start([], [taken])
    port = await listener.start([echo_service("a.v1")], [taken, 0])
    assert port not in (0, taken)
    device = await harness.pair()
    device.connect(port)
    assert await device.channels[-1].unary_unary("/a.v1/Echo")(b"", timeout=PATIENCE) == b"a.v1"
    await device.close()
    await listener.stop(None)


async def test_ipv6(harness: NodeServerHarness) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    listener = DeviceListener(harness.identities, "::1")
    assert await listener.start([], [0])
    await listener.stop(None)


@pytest.mark.promise("P-limits")
def test_connections_are_never_more_than_half_of_the_descriptors() -> None:
    assert connections_within(1024) == 512 and connections_within(1) == 1
    assert connections_within(None) == connections_within(1 << 20) == MAX_CONNECTIONS
