import asyncio
import contextlib
import errno
import socket
from pathlib import Path

import pytest

from fakes.egress_harness import SITE, echo, harness, server
from fakes.eventually import eventually
from palyra.egress.limits import LOOPBACK_CONGESTION, MAX_REFUSALS_KEPT, ProxyLimits

SYSTEM_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


async def test_the_account_of_a_door() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(b"\x00" * 10)
        await client.exactly(10)
        refused, _ = await stage.socks("other.test", 443)
        await refused.close()
        usage = stage.listener.close()
        assert (usage.bytes_up, usage.bytes_down, usage.connections) == (10, 10, 1)
        assert [refusal.host for refusal in usage.refusals] == ["other.test"]
        assert (usage.refused, usage.violations) == (1, 1)
        # Closing cuts what is open and listens no more; the account stays as it was.
        assert await client.is_reset()
        await client.close()
        with contextlib.suppress(ConnectionRefusedError):
            await stage.client()
            raise AssertionError("still listening")
        assert stage.listener.close() == usage


@pytest.mark.promise("P-limits")
async def test_one_call_gets_so_many_connections_and_no_more() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}", bounds={"max_tunnels": 2}) as stage:
        first, second = await stage.connect(f"{SITE}:{port}"), await stage.connect(f"{SITE}:{port}")
        third = await stage.client()
        await third.send(b"CONNECT x")
        assert await third.rest() == b""
        await third.close()
        assert stage.recorder.codes() == ["egress.too_many_tunnels"]
        await first.close()
        await eventually(lambda: len(stage.listener.tunnels) == 1)
        fourth = await stage.connect(f"{SITE}:{port}")
        for client in (second, fourth):
            await client.close()


async def test_refusals_are_all_counted_and_the_first_ones_kept() -> None:
    async with harness(SITE) as stage:
        for _ in range(MAX_REFUSALS_KEPT + 5):
            client, _ = await stage.socks("other.test", 443)
            await client.close()
        usage = stage.listener.usage()
        assert (len(usage.refusals), usage.refused) == (MAX_REFUSALS_KEPT, MAX_REFUSALS_KEPT + 5)


async def test_without_descriptors_the_listener_rests_and_comes_back() -> None:
    class Exhausted(socket.socket):
        failures = 3

        def _accept(self) -> tuple[int, object]:
            if Exhausted.failures:
                Exhausted.failures -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return super()._accept()

    from palyra.egress.proxy.server import ListeningSocket

    listening = Exhausted(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    async with server(echo) as port:
        listener = ListeningSocket(kind="proxy", socket=listening)
        async with harness(f"{SITE}:{port}", listeners=(listener,), limits=ProxyLimits(sweep_seconds=0.02)) as stage:
            client = await asyncio.wait_for(stage.connect(f"{SITE}:{port}"), 30)
            assert Exhausted.failures == 0
            await client.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the choice is Linux's")
async def test_what_goes_to_clients_on_this_machine_is_not_paced() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        (tunnel,) = stage.listener.tunnels
        assert tunnel.server is not None
        used = [
            stream.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
            for stream in (tunnel.client, tunnel.server)
        ]
        # The way out is the operator's to choose for.
        assert used == [LOOPBACK_CONGESTION, SYSTEM_CONGESTION.read_bytes().strip()]
        await client.close()
