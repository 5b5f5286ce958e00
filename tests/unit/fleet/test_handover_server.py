"""The handover socket: who may connect, what is answered, and what happens to listeners when a worker is gone."""

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import RemoteError
from palyra.fleet import limits
from palyra.fleet.egress.handover_client import HandoverClient
from palyra.fleet.egress.handover_protocol import BindingReply, GrantReply, UsageReply
from palyra.fleet.egress.handover_server import HandoverServer
from palyra.fleet.egress.leases import LeaseOver, LeaseRef, ProxyGone

REF = LeaseRef("l1", 3)


class Handler:
    def __init__(self) -> None:
        self.opened: list[tuple[LeaseRef, list[tuple[str, socket.socket]]]] = []
        self.ended = asyncio.Event()
        self.waiting = asyncio.Event()
        self.released = asyncio.Event()

    async def bind(self, worker_id: str, nonce: str) -> BindingReply:
        return BindingReply(egress_id="e", policy_digest_sha256="d", payload=nonce, signature="00")

    async def granted(self, ref: LeaseRef) -> GrantReply:
        if ref.lease_id == "slow":
            self.waiting.set()
            await self.released.wait()
        if ref.lease_id == "over":
            raise LeaseOver("the lease is over")
        return GrantReply(hosts=("a.example",), max_bytes=5)

    async def open(self, ref: LeaseRef, sockets: Any) -> None:
        self.opened.append((ref, sockets))

    async def close(self, ref: LeaseRef) -> UsageReply:
        if ref.lease_id == "broken":
            raise OSError(5, "input/output error")
        return UsageReply(connections=7)

    async def close_all(self) -> None:
        for _, sockets in self.opened:
            for _, each in sockets:
                each.close()
        self.ended.set()


@asynccontextmanager
async def served(
    folder: Path, uids: frozenset[int] | None = None
) -> AsyncIterator[tuple[Handler, HandoverServer, Path]]:
    handler = Handler()
    server = HandoverServer(handler, uids=uids or frozenset((os.geteuid(),)), foreign_network_only=False)
    path = folder / "egress.sock"
    server.listen(path)
    try:
        yield handler, server, path
    finally:
        await server.close()


async def test_questions_are_answered_each_with_its_own(tmp_path: Path) -> None:
    async with served(tmp_path) as (handler, _, path):
        client = await HandoverClient.connect(path)
        slow = asyncio.create_task(client.granted(LeaseRef("slow", 1)))
        await handler.waiting.wait()
        egress_id, signed = await client.bind("w", "beef")
        assert (egress_id, signed.payload) == ("e", b"\xbe\xef")
        assert (await client.granted(REF)).hosts == ("a.example",)
        assert not slow.done()
        handler.released.set()
        assert (await slow).max_bytes == 5
        with pytest.raises(RemoteError) as over:
            await client.granted(LeaseRef("over", 1))
        assert over.value.remote_code == "worker_egress.lease_over"
        with pytest.raises(RemoteError) as broken:
            await client.close_listener(LeaseRef("broken", 1))
        assert broken.value.remote_code == "worker_egress.door_failed"
        assert (await client.close_listener(REF)).connections == 7
        client.close()


async def test_the_doors_end_with_the_workers_connection(tmp_path: Path) -> None:
    async with served(tmp_path) as (handler, _, path):
        client = await HandoverClient.connect(path)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await client.open(REF, [("proxy", listener)])
            ((ref, ((kind, got),)),) = handler.opened
            assert (ref, kind, got.getsockname()) == (REF, "proxy", listener.getsockname())
        waiting = asyncio.create_task(client.granted(LeaseRef("slow", 1)))
        await handler.waiting.wait()
        client.close()
        with pytest.raises(ProxyGone):
            await waiting
        await asyncio.wait_for(handler.ended.wait(), 20)
        assert got.fileno() == -1


async def test_a_second_process_is_turned_away_until_the_first_is_gone(tmp_path: Path) -> None:
    async with served(tmp_path) as (handler, server, path):
        first = await HandoverClient.connect(path)
        await first.granted(REF)
        second = await HandoverClient.connect(path)
        with pytest.raises(RemoteError) as refused:
            await second.granted(REF)
        assert refused.value.remote_code == "worker_egress.another_connected" and server.turned_away == 1
        first.close()
        await asyncio.wait_for(handler.ended.wait(), 20)
        third = await HandoverClient.connect(path)
        await third.granted(REF)
        third.close()


async def test_another_user_is_turned_away_by_the_kernels_word(tmp_path: Path) -> None:
    async with served(tmp_path, frozenset((os.geteuid() + 1,))) as (_, server, path):
        # Those of another user have to reach it to be told apart.
        assert path.stat().st_mode & 0o777 == 0o666
        client = await HandoverClient.connect(path)
        with pytest.raises(RemoteError) as refused:
            await client.bind("w", "00")
        assert refused.value.remote_code == "worker_egress.wrong_user" and server.turned_away == 1
    async with served(tmp_path) as (_, _, path):
        assert path.stat().st_mode & 0o777 == 0o600


async def test_sockets_that_do_not_match_their_kinds_are_refused_and_closed(tmp_path: Path) -> None:
    async with served(tmp_path) as (handler, _, path):
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with raw, socket.create_server(("127.0.0.1", 0)) as listener:
            raw.connect(str(path))
            raw.setblocking(False)
            before = len(os.listdir("/proc/self/fd"))
            ask = b'{"ask":"open","id":1,"lease_id":"l","fence":3,"kinds":["proxy","dns_udp"]}'
            for descriptors in ([listener.fileno()], [listener.fileno(), listener.fileno()]):
                socket.send_fds(raw, [ask], descriptors)
                said = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(raw, 4096), 20)
                assert b"worker_egress.bad_socket" in said
            socket.send_fds(raw, [b"nonsense"], [listener.fileno()])
            said = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(raw, 4096), 20)
            assert b"worker_egress.bad_message" in said
            # The connection itself was opened here twice: our end and the server's.
            assert len(os.listdir("/proc/self/fd")) == before + 1 and not handler.opened


async def test_a_flood_of_questions_ends_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REQUESTS_AT_ONCE", 4)
    async with served(tmp_path) as (_, _, path):
        client = await HandoverClient.connect(path)
        requests = [asyncio.create_task(client.granted(LeaseRef("slow", 1))) for _ in range(8)]
        found = await asyncio.wait_for(asyncio.gather(*requests, return_exceptions=True), 20)
        assert all(isinstance(each, ProxyGone) for each in found)


async def test_nonsense_of_all_kinds_harms_nobody(tmp_path: Path) -> None:
    chance = random.Random(7)
    honest = [
        b'{"ask":"open","id":1,"lease_id":"l","fence":3,"kinds":["proxy"]}',
        b'{"ask":"bind","id":1,"worker_id":"w","nonce":"n"}',
        b'{"ask":"close","id":1,"lease_id":"l","fence":3}',
    ]
    async with served(tmp_path) as (handler, _, path):
        before = len(os.listdir("/proc/self/fd"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw, open(os.devnull, "rb") as nothing:
            raw.connect(str(path))
            raw.setblocking(False)
            for _ in range(300):
                packet = bytearray(chance.choice(honest))
                for _ in range(chance.randrange(4)):
                    packet[chance.randrange(len(packet))] = chance.randrange(256)
                descriptors = [nothing.fileno()] * chance.randrange(4)
                socket.send_fds(raw, [bytes(packet)], descriptors)
                assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(raw, 65_536), 20)
        await asyncio.wait_for(handler.ended.wait(), 20)
        assert len(os.listdir("/proc/self/fd")) == before and not handler.opened
        client = await HandoverClient.connect(path)
        assert (await client.granted(REF)).max_bytes == 5
        client.close()
