"""Floods at the doors: of questions, of names, of clients that say nothing, towards a server that takes nobody in.

Whoever floods may lose their own traffic. The proxy serves the other calls, and holds no more for the flood than its
bounds say.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from fakes.dns_query import question, udp
from fakes.egress_harness import SITE, Client, EgressHarness, echo, harness, make_grant, server
from fakes.eventually import eventually
from palyra.egress.limits import MAX_REFUSALS_KEPT, MAX_REFUSALS_REPORTED, MAX_SYNTHETIC_NAMES, ProxyLimits
from palyra.egress.protocols.dns import SyntheticNames
from palyra.egress.proxy.server import CallListener, ListeningSocket

pytestmark = pytest.mark.promise("P-floods")

# Questions for names that were never asked before, as fast as one core can send them, until it is ended.
FLOOD = """
import socket, sys
port = int(sys.argv[1])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setblocking(False)
for number in range(100_000_000):
    name = b"%08d" % number
    packet = b"\\0\\1\\1\\0\\0\\1" + bytes(6) + bytes((len(name),)) + name + b"\\4evil\\4test\\0\\0\\1\\0\\1"
    try:
        sock.sendto(packet, ("127.0.0.1", port))
    except OSError:
        pass
"""


@contextmanager
def flooding(port: int) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", FLOOD, str(port)]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def second_call(stage: EgressHarness, *rules: str) -> Iterator[tuple[CallListener, int]]:
    """Another call of the same proxy, with a listener of its own."""
    listening = socket.create_server(("127.0.0.1", 0))
    listener = stage.proxy.open_listener(make_grant(*rules), [ListeningSocket(kind="proxy", socket=listening)])
    try:
        yield listener, listening.getsockname()[1]
    finally:
        listener.close()


async def through(proxy_port: int, authority: str, words: bytes) -> bytes:
    client = Client(*await asyncio.open_connection("127.0.0.1", proxy_port))
    await client.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    assert b" 200 " in await client.head()
    await client.send(words)
    got = await client.exactly(len(words))
    await client.close()
    return got


async def test_a_flood_of_questions_stops_neither_other_calls_nor_the_callers_own() -> None:
    names = SyntheticNames([SITE])
    listener = udp()
    where = listener.getsockname()
    ways = (
        ListeningSocket(kind="proxy", socket=socket.create_server(("127.0.0.1", 0))),
        ListeningSocket(kind="dns_udp", socket=listener),
    )
    async with server(echo) as port, harness(f"{SITE}:{port}", names=names, listeners=ways) as stage:
        with second_call(stage, f"{SITE}:{port}") as (_, other_port), flooding(where[1]) as flood:
            await eventually(lambda: stage.listener.usage().refused >= MAX_REFUSALS_REPORTED)
            for number in range(40):
                words = b"\x00%d" % number
                assert await through(other_port, f"{SITE}:{port}", words) == words
                assert await through(stage.port, f"{SITE}:{port}", words) == words
            assert flood.poll() is None
        # What was held for it: so many names and so many refusals, however many came.
        usage = stage.listener.usage()
        assert (usage.refused, len(usage.refusals)) == (MAX_REFUSALS_REPORTED, MAX_REFUSALS_KEPT)
        assert len(stage.recorder.refusals()) == MAX_REFUSALS_REPORTED
        assert len(names) == 1
        assert stage.resolver.asked.count(SITE) == len(stage.resolver.asked)
        # After it a question is answered as before; one that still met a full queue is asked again, as resolvers do.
        loop = asyncio.get_running_loop()
        answer = b""
        with udp() as client:
            client.setblocking(False)
            for _ in range(100):
                client.sendto(question(SITE), where)
                with suppress(TimeoutError):
                    answer = await asyncio.wait_for(loop.sock_recv(client, 4096), 0.5)
                    break
        assert socket.inet_ntoa(answer[-4:]) == names.assign(SITE)


async def test_a_program_that_takes_all_synthetic_addresses_takes_them_from_itself() -> None:
    names = SyntheticNames([SITE])
    address = names.assign(SITE) or ""
    async with server(echo) as port:
        ways = (
            ListeningSocket(kind="dns_tcp", socket=socket.create_server(("127.0.0.1", 0))),
            ListeningSocket(kind="transparent", socket=socket.create_server((address, port))),
        )
        async with harness(f"{SITE}:{port}", f"*.wild.test:{port}", names=names, listeners=ways) as stage:
            asker = await stage.client()

            async def ask(name: str) -> tuple[int, str]:
                query = question(name)
                await asker.send(len(query).to_bytes(2, "big") + query)
                answer = await asker.exactly(int.from_bytes(await asker.exactly(2), "big"))
                code = answer[3] & 0xF
                return code, "" if code else socket.inet_ntoa(answer[-4:])

            given = [await ask(f"n{number}.wild.test") for number in range(MAX_SYNTHETIC_NAMES - 1)]
            assert {code for code, _ in given} == {0}
            # No two names share an address, and none got that of a name which was there before.
            assert len({each for _, each in given} | {address}) == MAX_SYNTHETIC_NAMES
            for number in range(20):
                assert await ask(f"late{number}.wild.test") == (5, "")
            assert len(names) == MAX_SYNTHETIC_NAMES
            assert stage.recorder.codes() == ["egress.host_not_allowed"] * 20
            assert "one name too many" in stage.recorder.refusals()[0].refusal.detail
            # Names that were given out keep their addresses, and the call's own host still works.
            assert await ask("n0.wild.test") == given[0]
            assert await ask(SITE) == (0, address)
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(b"\x00still")
            assert await reader.readexactly(6) == b"\x00still"
            writer.close()
            await asker.close()
            # Another call has names of its own.
            assert SyntheticNames([]).assign("late0.wild.test") is not None


async def test_clients_that_connect_and_say_nothing_do_not_keep_others_out() -> None:
    """More of them than the listener's queue holds: some wait in the kernel, some with us, and all are cut."""
    limits = ProxyLimits(handshake_seconds=2.0, sweep_seconds=0.02)
    many = 400
    async with server(echo) as port:
        listener = ListeningSocket(kind="proxy", socket=socket.create_server(("127.0.0.1", 0), backlog=64))
        rules = f"{SITE}:{port}"
        async with harness(rules, limits=limits, listeners=(listener,), bounds={"max_tunnels": many + 10}) as stage:
            silent = []
            for _ in range(many):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", stage.port))
                silent.append(sock)
                await asyncio.sleep(0)
            for number in range(10):
                words = b"\x00%d" % number
                assert await through(stage.port, f"{SITE}:{port}", words) == words
            await eventually(lambda: stage.proxy.tunnels == 0)
            assert set(stage.recorder.codes()) <= {"egress.handshake_timeout"}
            for sock in silent:
                sock.close()


async def test_a_server_that_takes_nobody_in_holds_only_those_who_knock_there() -> None:
    limits = ProxyLimits(connect_seconds=1.0, sweep_seconds=0.02)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # With its queue full the kernel drops the next who knock, as a host that is overrun does.
        knocking = [socket.socket() for _ in range(4)]
        for sock in knocking:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        slow = f"{SITE}:{full.getsockname()[1]}"
        async with server(echo) as port, harness(slow, f"{SITE}:{port}", limits=limits) as stage:
            waiting = []
            for _ in range(40):
                client = await stage.client()
                await client.send(f"CONNECT {slow} HTTP/1.1\r\nHost: {slow}\r\n\r\n".encode())
                waiting.append(client)
            assert await through(stage.port, f"{SITE}:{port}", b"\x00quick") == b"\x00quick"
            for client in waiting:
                assert (await client.head()).startswith(b"HTTP/1.1 502 ")
                await client.close()
            assert stage.recorder.codes() == ["egress.unreachable"] * 40
            await eventually(lambda: stage.proxy.tunnels == 0)
        for sock in knocking:
            sock.close()
