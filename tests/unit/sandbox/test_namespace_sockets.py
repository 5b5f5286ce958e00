"""Sockets in the network of a real sandbox that waits."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.foreign_sockets import foreign_sockets
from fakes.isolated import planned, profile_of, start
from fakes.processes import descendants
from palyra.sandbox.domain.network import DoorPlan, ListenerKind, NetworkSeen, judge_network
from palyra.sandbox.domain.profile import EgressEnforcementMode
from palyra.sandbox.network.call_network import NamespaceSockets, SocketsNotOpened, namespace_of
from palyra.sandbox.verify.readback import Gate, NotBuilt, Waiting

PLAN = DoorPlan(ports=(80, 443, 8443))


@contextlib.contextmanager
def waiting_sandbox(base: Path, **changes: object) -> Iterator[Waiting]:
    plan = planned(profile_of(base, **changes), ["/usr/bin/true"])
    with Gate() as gate:
        process = start(plan, gate)
        pid = 0
        try:
            info = gate.wait()
            pid = int(info["child-pid"])
            with Waiting(info) as waiting:
                yield waiting
        finally:
            if pid:
                # bubblewrap may have buried it already.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.communicate()


@pytest.fixture
async def client() -> AsyncIterator[NamespaceSockets]:
    client = NamespaceSockets()
    yield client
    await client.close()


async def open_again(client: NamespaceSockets, network: int, owner: int) -> None:
    """Whoever opened them before has its own copies for another moment."""

    async def is_open() -> bool:
        with contextlib.suppress(SocketsNotOpened):
            (await client.open(PLAN, network, owner)).close()
            return True
        return False

    await eventually(is_open)


async def test_they_listen_in_the_sandboxs_network_and_nowhere_else(client: NamespaceSockets, tmp_path: Path) -> None:
    with waiting_sandbox(tmp_path) as waiting:
        with waiting.network() as (network, owner):
            number = os.fstat(network).st_ino
            opened = await client.open(PLAN, network, owner)
        with opened:
            waiting.settle()
            seen = NetworkSeen(
                listeners=opened.seen(),
                loopback_up=opened.loopback_up(),
                routes=await asyncio.to_thread(waiting.routes),
            )
            assert judge_network(PLAN, seen, namespace=number, interfaces=("lo",)) == []
            assert [each.getsockname()[1] for each in opened.of(ListenerKind.TRANSPARENT)] == [80, 443, 8443]
            assert all(namespace_of(each.socket) == number for each in opened)
            assert len(foreign_sockets()) == 6
            with socket.socket() as here:
                # The host's own ports are as free as before.
                here.bind(("127.0.0.1", 0))
                assert namespace_of(here) != number
        assert foreign_sockets() == []


async def test_a_sandbox_with_the_hosts_network_is_not_entered(client: NamespaceSockets, tmp_path: Path) -> None:
    shared = waiting_sandbox(tmp_path, egress=EgressEnforcementMode.NONE)
    with shared as waiting, pytest.raises(NotBuilt, match="no network of its own"), waiting.network():
        pass
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        with pytest.raises(SocketsNotOpened, match="host's own network"):
            await client.open(PLAN, own, own)
    finally:
        os.close(own)


async def test_a_sandbox_that_ended_has_no_network(tmp_path: Path) -> None:
    with waiting_sandbox(tmp_path) as waiting:
        os.kill(waiting.pid, signal.SIGKILL)
        await eventually(lambda: waiting.pid not in _living())
        with pytest.raises(NotBuilt, match="could not be reached"), waiting.network():
            pass


async def test_a_port_that_is_taken_is_told(client: NamespaceSockets, tmp_path: Path) -> None:
    with waiting_sandbox(tmp_path) as waiting, waiting.network() as (network, owner):
        first = await client.open(PLAN, network, owner)
        with first, pytest.raises(SocketsNotOpened, match="Address already in use") as refused:
            await client.open(PLAN, network, owner)
        assert refused.value.details["errno"]
        # Those of the second order that did open are gone again.
        await open_again(client, network, owner)


async def test_a_helper_that_was_killed_is_started_again(client: NamespaceSockets, tmp_path: Path) -> None:
    with waiting_sandbox(tmp_path) as waiting, waiting.network() as (network, owner):
        for _ in range(3):
            await open_again(client, network, owner)
            killed = client.helper_pid
            assert killed is not None
            below = descendants(killed)
            os.kill(killed, signal.SIGKILL)
            await eventually(lambda below=below: not (below & _living()))
        await open_again(client, network, owner)
        assert client.helper_pid != killed


async def test_whoever_stops_waiting_leaves_nothing_open(client: NamespaceSockets, tmp_path: Path) -> None:
    with waiting_sandbox(tmp_path) as waiting, waiting.network() as (network, owner):
        await client.start()
        before = len(os.listdir("/proc/self/fd"))
        for turns in range(6):
            opening = asyncio.ensure_future(client.open(PLAN, network, owner))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await opening).close()
        assert len(os.listdir("/proc/self/fd")) == before
        assert foreign_sockets() == []
        await open_again(client, network, owner)


async def test_its_processes_end_with_it(tmp_path: Path) -> None:
    client = NamespaceSockets(ready=3)
    await asyncio.gather(client.start(), client.start())
    pid = client.helper_pid
    assert pid is not None
    await eventually(lambda: len(descendants(pid)) == 3)
    below = descendants(pid)
    await client.close()
    await eventually(lambda: not (({pid} | below) & _living()))
    with pytest.raises(SocketsNotOpened):
        await client.start()


async def test_a_helper_that_cannot_be_started_is_told() -> None:
    client = NamespaceSockets(python="/nonexistent/python")
    for _ in range(2):
        with pytest.raises(SocketsNotOpened, match="could not be started"):
            await client.start()
    await client.close()


def _living() -> set[int]:
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z":
                    found.add(int(name))
    return found
