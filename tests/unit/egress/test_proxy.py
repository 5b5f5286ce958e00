import asyncio
import socket

import msgspec
import pytest

from fakes.egress_harness import SITE, echo, harness, make_grant, server
from fakes.eventually import eventually
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.rules import parse_rules
from palyra.egress.limits import ProxyLimits
from palyra.egress.proxy.server import ListeningSocket


async def test_listeners_are_apart() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        other = socket.create_server(("127.0.0.1", 0))
        listener = stage.proxy.open_listener(make_grant("else.test"), [ListeningSocket(kind="proxy", socket=other)])
        where = other.getsockname()[1]
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(b"\x00abc")
        await client.exactly(4)
        stage.port = where
        refused, code = await stage.socks(SITE, port)
        assert code == 2
        usages = [each.usage() for each in stage.proxy.listeners]
        assert sorted((one.connections, one.refused, one.bytes_up, one.bytes_down) for one in usages) == [
            (0, 1, 0, 0),
            (1, 0, 4, 4),
        ]
        assert listener.close().refused == 1
        assert len(stage.proxy.listeners) == 1
        await refused.close()
        await client.close()


async def test_a_change_of_policy_cuts_what_it_no_longer_allows_and_nothing_else() -> None:
    async with server(echo) as kept, server(echo) as lost, harness(f"{SITE}:{kept}", f"{SITE}:{lost}") as stage:
        stays, goes = await stage.connect(f"{SITE}:{kept}"), await stage.connect(f"{SITE}:{lost}")

        def without_the_second(grant: EgressGrant) -> EgressGrant:
            return msgspec.structs.replace(grant, rules=parse_rules((f"{SITE}:{kept}",)))

        assert stage.proxy.reconsider(without_the_second) == 1
        assert await goes.is_reset()
        await goes.close()
        await stays.send(b"\x00on")
        assert await stays.exactly(3) == b"\x00on"
        await stays.close()
        assert stage.recorder.codes() == ["egress.policy_changed"]
        refused, code = await stage.socks(SITE, lost)
        assert code == 2
        await refused.close()


async def test_private_addresses_that_are_no_longer_open_cut_the_tunnel() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        assert stage.proxy.reconsider(lambda grant: msgspec.structs.replace(grant, private_targets=())) == 1
        assert await client.is_reset()
        await client.close()


async def test_a_grant_that_is_gone_allows_nothing() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        assert stage.proxy.reconsider(lambda _grant: None) == 1
        assert await client.is_reset()
        await client.close()
        refused, code = await stage.socks(SITE, port)
        assert code == 2
        await refused.close()


async def test_a_full_proxy_gives_the_place_of_the_most_silent_tunnel_to_the_next() -> None:
    limits = ProxyLimits(max_tunnels=2, spare_after_seconds=0.05, sweep_seconds=0.01)
    async with server(echo) as port, harness(f"{SITE}:{port}", limits=limits) as stage:
        silent, busy = await stage.connect(f"{SITE}:{port}"), await stage.connect(f"{SITE}:{port}")
        for _ in range(10):
            await busy.send(b"\x00")
            await busy.exactly(1)
            await asyncio.sleep(0.01)
        newcomer = await stage.connect(f"{SITE}:{port}")
        assert await silent.is_reset()
        await newcomer.send(b"\x00new")
        assert await newcomer.exactly(4) == b"\x00new"
        assert stage.recorder.codes() == ["egress.too_many_tunnels"]
        for client in (silent, busy, newcomer):
            await client.close()


async def test_a_full_proxy_of_busy_tunnels_says_no() -> None:
    limits = ProxyLimits(max_tunnels=1, spare_after_seconds=1000)
    async with server(echo) as port, harness(f"{SITE}:{port}", limits=limits) as stage:
        busy = await stage.connect(f"{SITE}:{port}")
        refused = await stage.client()
        await refused.send(b"CONNECT x")
        assert await refused.rest() == b""
        assert stage.recorder.codes() == ["egress.too_many_tunnels"]
        for client in (busy, refused):
            await client.close()


async def test_an_unused_proxy_closes_quietly() -> None:
    async with harness(SITE):
        pass


@pytest.mark.parametrize("many", [50])
async def test_many_at_once(many: int) -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:

        async def one(number: int) -> None:
            client = await stage.connect(f"{SITE}:{port}")
            data = b"\x00" + str(number).encode() * 100
            await client.send(data)
            assert await client.exactly(len(data)) == data
            await client.close()

        await asyncio.gather(*map(one, range(many)))
        await eventually(lambda: stage.proxy.tunnels == 0)
        assert stage.listener.usage().connections == many
