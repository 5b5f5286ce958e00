"""The network of a sandbox on a worker: what is handed over, what comes back, and a proxy that comes back."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import RemoteError
from palyra.fleet.egress.handover_client import LeaseNetwork, ProxyOfWorker
from palyra.fleet.egress.handover_protocol import BindingReply, GrantReply, UsageReply
from palyra.fleet.egress.handover_server import HandoverServer
from palyra.fleet.egress.leases import LeaseNotGranted, LeaseRef, ProxyGone
from palyra.sandbox.domain.network import ListenerKind, ListenerPlan
from palyra.sandbox.network.call_network import OpenedSocket, OpenedSockets

REF = LeaseRef("l1", 3)


class Handler:
    def __init__(self) -> None:
        self.kinds: list[str] = []

    async def bind(self, worker_id: str, nonce: str) -> BindingReply:
        return BindingReply(egress_id="e", policy_digest_sha256="d", payload="00", signature="00")

    async def granted(self, ref: LeaseRef) -> GrantReply:
        if ref != REF:
            raise LeaseNotGranted("no")
        return GrantReply(hosts=("a.example",), max_bytes=1)

    async def open(self, ref: LeaseRef, sockets: Any) -> None:
        self.kinds = [kind for kind, _ in sockets]
        for _, each in sockets:
            each.close()

    async def close(self, ref: LeaseRef) -> UsageReply:
        return UsageReply(connections=2, bytes_up=3, bytes_down=4, refused=1, violations=1, refusals=({"code": "x"},))

    async def close_all(self) -> None:
        return


def serve(path: Path) -> tuple[Handler, HandoverServer]:
    handler = Handler()
    server = HandoverServer(handler, uids=frozenset((os.geteuid(),)), foreign_network_only=False)
    server.listen(path)
    return handler, server


async def test_a_doors_sockets_go_to_the_proxy_and_its_account_comes_back(tmp_path: Path) -> None:
    handler, server = serve(tmp_path / "s")
    proxy = ProxyOfWorker(tmp_path / "s")
    assert await proxy.hosts("l1", 3) == ("a.example",)
    with pytest.raises(RemoteError):
        await proxy.hosts("l2", 3)
    network = proxy.network("l1", 3)
    assert isinstance(network, LeaseNetwork)
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        opened = OpenedSockets(
            (
                OpenedSocket(ListenerPlan(ListenerKind.PROXY, "127.0.0.1", 1), tcp),
                OpenedSocket(ListenerPlan(ListenerKind.DNS_UDP, "127.0.0.1", 1), udp),
            )
        )
        handle = await network.serve(opened)
    assert handler.kinds == ["proxy", "dns_udp"]
    usage = await handle.close()
    assert (usage.connections, usage.bytes_up, usage.bytes_down, usage.violations) == (2, 3, 4, 1)
    assert usage.refusals == ({"code": "x"},)
    proxy.close()
    await server.close()


async def test_a_proxy_that_was_restarted_is_found_again(tmp_path: Path) -> None:
    proxy = ProxyOfWorker(tmp_path / "s")
    with pytest.raises(ProxyGone):
        await proxy.binding("w", "n")
    for _ in range(2):
        _, server = serve(tmp_path / "s")
        assert (await proxy.binding("w", "n"))[0] == "e"
        client = proxy._client
        await server.close()
        assert client is not None
        await asyncio.wait_for(client.ended.wait(), 20)
    proxy.close()
