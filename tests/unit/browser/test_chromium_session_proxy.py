"""The guard of sessions: each has its own door and account, and hears of nothing but its own."""

import asyncio
import socket

import msgspec

from fakes.egress_harness import FixedResolver, echo_request_target, make_grant, server
from palyra.browser.service.chromium_session_proxy import ChromiumSessionProxy
from palyra.egress.domain.events import Connected, EgressEvent, Refused
from palyra.egress.settings import EgressSettings


async def ask(port: int, host: str, to: int) -> int:
    """The code of SOCKS5's answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x05\x01\x00")
    await reader.readexactly(2)
    writer.write(b"\x05\x01\x00\x03" + bytes((len(host),)) + host.encode() + to.to_bytes(2, "big"))
    answer = await reader.readexactly(10)
    if answer[1] == 0:
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}:{to}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return answer[1]


async def test_each_session_has_its_own_listener() -> None:
    guard = ChromiumSessionProxy(EgressSettings(), FixedResolver({"shop.test": ("127.0.0.1",)}))
    received: dict[str, list[EgressEvent]] = {"a": [], "b": []}
    async with server(echo_request_target) as port:
        listeners, ports = [], []
        for name in received:
            socket_ = socket.create_server(("127.0.0.1", 0))
            ports.append(socket_.getsockname()[1])
            rules = (f"shop.test:{port}",) if name == "a" else ()
            grant = msgspec.structs.replace(make_grant(*rules), grant_id=name)
            listeners.append(guard.serve(socket_, grant, received[name].append))
        assert await ask(ports[0], "shop.test", port) == 0
        assert await ask(ports[1], "shop.test", port) == 2
        assert listeners[0].moved() > 50 and listeners[1].moved() == 0
        assert len(guard._proxy.listeners) == 2
        for listener in listeners:
            await listener.close()
    assert any(isinstance(event, Connected) for event in received["a"])
    assert [type(event) for event in received["b"]] == [Refused]
    assert len(guard._proxy.listeners) == 0
    guard.close()
