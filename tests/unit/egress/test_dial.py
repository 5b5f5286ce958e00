import asyncio
import socket

import pytest

from fakes.egress_harness import SITE, FixedResolver, echo, make_grant, server
from palyra.egress.domain.grant import ByteBudget, Meter
from palyra.egress.domain.judge import EgressProxyPolicyService, Pin
from palyra.egress.domain.refusal import (
    AddressForbidden,
    EgressRefused,
    HostNotAllowed,
    NameUnresolved,
    PeerChanged,
    Unreachable,
)
from palyra.egress.domain.target import Target
from palyra.egress.proxy.dial import Dialler


def dialler(resolver: FixedResolver | None = None, seconds: float = 5.0) -> Dialler:
    names = resolver or FixedResolver({SITE: ("127.0.0.1",)})
    return Dialler(EgressProxyPolicyService(frozenset), names, connect_seconds=seconds)


def meter() -> Meter:
    return Meter(ByteBudget(1 << 30))


async def test_a_judged_name_is_resolved_once_and_dialled_where_it_was_judged() -> None:
    async with server(echo) as port:
        resolver = FixedResolver({SITE: [("127.0.0.1",), ("10.0.0.1",)]})
        way = dialler(resolver)
        pin = await way.pin(make_grant(f"{SITE}:{port}"), Target.of(SITE, port, scheme="tcp"))
        assert pin.addresses == ("127.0.0.1",)
        stream, address = await way.dial(pin, meter())
        assert address == stream.sock.getpeername()[0] == "127.0.0.1"
        assert resolver.asked == [SITE]
        await stream.write(b"there")
        assert await stream.read() == b"there"
        stream.close()


@pytest.mark.parametrize(
    ("host", "answers", "leaf"),
    [
        ("other.test", ("192.0.2.1",), HostNotAllowed),
        (SITE, ("127.0.0.1",), AddressForbidden),
        (SITE, ("8.8.8.8", "169.254.169.254"), AddressForbidden),
        (SITE, (), NameUnresolved),
    ],
)
async def test_what_must_not_be_reached_is_not(host: str, answers: tuple[str, ...], leaf: type[EgressRefused]) -> None:
    way = dialler(FixedResolver({host: answers}))
    with pytest.raises(leaf):
        await way.pin(make_grant(SITE, private=()), Target.of(host, 443, scheme="https"))


async def test_a_denied_name_is_not_even_looked_up() -> None:
    resolver = FixedResolver({})
    with pytest.raises(HostNotAllowed):
        await dialler(resolver).pin(make_grant(SITE), Target.of("secret-bytes.evil.test", 443, scheme="https"))
    assert resolver.asked == []


async def test_the_next_address_is_tried_when_the_first_does_not_answer() -> None:
    async with server(echo, host="127.0.0.2") as port:
        pin = Pin(target=Target.of(SITE, port, scheme="tcp"), addresses=("127.0.0.3", "127.0.0.2"))
        stream, address = await dialler().dial(pin, meter())
        assert address == "127.0.0.2"
        stream.close()


async def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    pin = Pin(target=Target.of(SITE, port, scheme="tcp"), addresses=("127.0.0.1", "::1"))
    with pytest.raises(Unreachable) as caught:
        await dialler().dial(pin, meter())
    assert caught.value.refusal().port == port


async def test_a_host_that_never_answers_costs_only_the_time_it_has() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # With its queue full the kernel drops the next who knock, as a firewall would.
        knocking = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(full.getsockname())
            knocking.append(one)
        pin = Pin(target=Target.of(SITE, full.getsockname()[1], scheme="tcp"), addresses=("127.0.0.1",))
        with pytest.raises(Unreachable, match="no answer"):
            await dialler(seconds=0.05).dial(pin, meter())
        for one in knocking:
            one.close()


async def test_a_connection_that_ends_elsewhere_is_closed() -> None:
    class Redirected(Dialler):
        @staticmethod
        def _begin(sock: socket.socket, address: str, port: int) -> bool:
            return Dialler._begin(sock, "127.0.0.1", port)

    seen = asyncio.Event()

    async def notice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""
        seen.set()

    async with server(notice) as port:
        way = Redirected(EgressProxyPolicyService(frozenset), FixedResolver({}), connect_seconds=5)
        pin = Pin(target=Target.of(SITE, port, scheme="tcp"), addresses=("127.0.0.9",))
        with pytest.raises(PeerChanged):
            await way.dial(pin, meter())
        await seen.wait()
