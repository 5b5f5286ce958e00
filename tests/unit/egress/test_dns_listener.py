import asyncio
import socket

import pytest

from fakes.dns_query import question, udp
from fakes.egress_harness import SITE, harness
from fakes.eventually import eventually
from palyra.egress.protocols.dns import SyntheticNames
from palyra.egress.proxy.server import ListeningSocket


async def test_udp_answers_allowed_names_and_tells_of_others_once() -> None:
    names = SyntheticNames([SITE])
    listener = udp()
    where = listener.getsockname()
    async with harness(SITE, names=names, listeners=(ListeningSocket(kind="dns_udp", socket=listener),)) as stage:
        loop = asyncio.get_running_loop()
        with udp() as client:
            client.setblocking(False)

            async def ask(query: bytes) -> bytes:
                client.sendto(query, where)
                return await loop.sock_recv(client, 4096)

            answer = await ask(question(SITE))
            assert socket.inet_ntoa(answer[-4:]) == names.assign(SITE)
            for kind in (1, 28):
                assert (await ask(question("leaked-secret.evil.test", kind)))[3] & 0xF == 3
        assert stage.recorder.codes() == ["egress.host_not_allowed"]
        assert stage.recorder.refusals()[0].face == "dns"
        assert stage.resolver.asked == []


async def test_tcp_answers_one_question_after_the_other() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    names = SyntheticNames([SITE])
    async with harness(SITE, names=names, listeners=(ListeningSocket(kind="dns_tcp", socket=listening),)) as stage:
        client = await stage.client()
        query = question(SITE)
        framed = len(query).to_bytes(2, "big") + query
        await client.send(framed + framed[:5])
        await client.send(framed[5:])
        for _ in range(2):
            length = int.from_bytes(await client.exactly(2), "big")
            assert socket.inet_ntoa((await client.exactly(length))[-4:]) == names.assign(SITE)
        await client.close()
        for nonsense in (b"\xff\xff", b"\x00\x00"):
            odd = await stage.client()
            await odd.send(nonsense)
            assert await odd.is_reset()
            await odd.close()
        await eventually(lambda: len(stage.recorder.codes()) == 2)
        assert set(stage.recorder.codes()) == {"egress.malformed_traffic"}


@pytest.mark.parametrize("query", [b"", b"\x00", bytes(12), bytes(2000)])
async def test_nonsense_does_not_stop_the_door(query: bytes) -> None:
    listener = udp()
    where = listener.getsockname()
    async with harness(
        SITE, names=SyntheticNames([SITE]), listeners=(ListeningSocket(kind="dns_udp", socket=listener),)
    ):
        with udp() as client:
            client.setblocking(False)
            client.sendto(query, where)
            client.sendto(question(SITE), where)
            loop = asyncio.get_running_loop()
            while (await loop.sock_recv(client, 4096))[:2] != b"\x12\x34":
                pass
