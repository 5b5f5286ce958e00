"""Real sockets on both sides; the sides that belong to the test are read and written by threads or by hand."""

import asyncio
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from palyra.egress.domain.grant import ByteBudget, Meter
from palyra.egress.domain.refusal import ByteBudgetSpent, MalformedTraffic
from palyra.egress.limits import RELAY_READ_BYTES
from palyra.egress.proxy.relay import Gate, Relay, RelayEngine
from palyra.egress.proxy.socket_stream import SocketStream


class Wired:
    """client <-> relay <-> server, over TCP."""

    def __init__(self, limit: int = 1 << 40) -> None:
        loop = asyncio.get_running_loop()
        self.client, inner_client = tcp_pair()
        self.server, inner_server = tcp_pair()
        self.meter = Meter(ByteBudget(limit))
        self.engine = RelayEngine(loop)
        self.inner = (SocketStream(inner_client, loop), SocketStream(inner_server, loop, self.meter))
        self.relay = Relay(self.engine, *self.inner, self.meter)

    def start(self, gate: Gate | None = None, *, close: bool = True) -> "asyncio.Task[None]":
        return asyncio.create_task(self._run(gate, close))

    async def _run(self, gate: Gate | None, close: bool) -> None:
        """As a tunnel does: what has ended is closed."""
        await self.relay.run(gate)
        if close:
            for stream in self.inner:
                stream.close()

    def close(self) -> None:
        self.client.close()
        self.server.close()
        for stream in self.inner:
            stream.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    return client, server


def receive_all(sock: socket.socket) -> tuple[int, str]:
    digest, count = hashlib.sha256(), 0
    while data := sock.recv(1 << 20):
        digest.update(data)
        count += len(data)
    return count, digest.hexdigest()


def send_all(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def on_that_loop(work: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)  # type: ignore[arg-type]

    return on_that_loop


def test_bulk_in_both_directions_at_once_arrives_whole(run: Callable[[Awaitable[None]], None]) -> None:
    async def scenario() -> None:
        up, down = os.urandom(9 * 1024 * 1024 + 17), os.urandom(7 * 1024 * 1024 + 3)
        wired = Wired()
        relay = wired.start()
        _, _, at_server, at_client = await asyncio.gather(
            asyncio.to_thread(send_all, wired.client, up),
            asyncio.to_thread(send_all, wired.server, down),
            asyncio.to_thread(receive_all, wired.server),
            asyncio.to_thread(receive_all, wired.client),
        )
        await relay
        assert at_server == (len(up), hashlib.sha256(up).hexdigest())
        assert at_client == (len(down), hashlib.sha256(down).hexdigest())
        assert (wired.meter.up, wired.meter.down) == (len(up), len(down))
        wired.close()

    run(scenario())


def test_one_side_may_end_long_before_the_other(run: Callable[[Awaitable[None]], None]) -> None:
    async def scenario() -> None:
        wired = Wired()
        relay = wired.start()
        send_all(wired.client, b"question")
        assert await asyncio.to_thread(receive_all, wired.server) == (8, hashlib.sha256(b"question").hexdigest())
        await asyncio.sleep(0.01)
        assert not relay.done()
        send_all(wired.server, b"answer")
        assert await asyncio.to_thread(wired.client.recv, 100) == b"answer"
        await relay
        wired.close()

    run(scenario())


async def test_bytes_and_the_end_that_were_there_before_are_passed_on() -> None:
    wired = Wired()
    send_all(wired.client, b"all at once")
    wired.server.close()
    await wired.start()
    assert wired.meter.up == 11
    wired.close()


async def test_a_reader_that_does_not_read_stops_the_sender() -> None:
    wired = Wired()
    relay = wired.start()
    wired.server.setblocking(False)
    sent = quiet = 0
    while quiet < 20:
        try:
            sent += wired.server.send(b"x" * 262144)
            quiet = 0
        except BlockingIOError:
            quiet += 1
            await asyncio.sleep(0.005)
    # What was taken is in the buffers of the kernel, not piling up here.
    assert wired.meter.down <= sent < 64 * 1024 * 1024
    wired.server.shutdown(socket.SHUT_WR)
    wired.client.shutdown(socket.SHUT_WR)
    got, _ = await asyncio.to_thread(receive_all, wired.client)
    assert got == sent
    await relay
    wired.close()


@pytest.mark.parametrize("limit", [1, 1000, RELAY_READ_BYTES * 20 + 5])
async def test_not_a_byte_more_than_the_budget_goes_through(limit: int) -> None:
    wired = Wired(limit)
    relay = wired.start()

    def flood() -> None:
        with pytest.raises(OSError):
            while True:
                wired.server.sendall(b"x" * 65536)

    flooding = asyncio.create_task(asyncio.to_thread(flood))
    reading = asyncio.create_task(asyncio.to_thread(receive_all, wired.client))
    with pytest.raises(ByteBudgetSpent):
        await relay
    for stream in wired.inner:
        stream.close()
    await flooding
    assert (await reading)[0] == wired.meter.down == limit
    wired.close()


async def test_a_budget_that_is_just_enough_lets_both_sides_end() -> None:
    wired = Wired(10)
    relay = wired.start()
    send_all(wired.client, b"12345")
    send_all(wired.server, b"67890")
    await relay
    assert wired.meter.left() == 0
    wired.close()


async def test_a_peer_that_breaks_off_breaks_the_relay() -> None:
    wired = Wired()
    relay = wired.start()
    await asyncio.sleep(0)
    wired.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    wired.server.close()
    with pytest.raises(ConnectionResetError):
        await relay
    wired.close()


async def test_what_the_gate_holds_back_is_not_sent_and_what_it_refuses_never_is() -> None:
    wired = Wired()
    held = b""

    def gate(data: bytes) -> bytes:
        nonlocal held
        held += data
        if b"!" in held:
            raise MalformedTraffic("no")
        return held if b"." in held else b""

    relay = wired.start(gate)
    wired.client.sendall(b"first")
    await asyncio.sleep(0.01)
    wired.server.setblocking(False)
    with pytest.raises(BlockingIOError):
        wired.server.recv(1)
    # The other direction does not wait for the gate.
    wired.server.sendall(b"banner")
    assert await asyncio.to_thread(wired.client.recv, 100) == b"banner"
    wired.client.sendall(b"!")
    with pytest.raises(MalformedTraffic):
        await relay
    assert wired.meter.up == 0
    wired.close()


async def test_the_gate_opens_once_for_everything_held() -> None:
    wired = Wired()
    held = b""
    asked = 0

    def gate(data: bytes) -> bytes:
        nonlocal held, asked
        held += data
        asked += 1
        return held if b"." in held else b""

    wired.inner[0].unread(b"kept ")
    relay = wired.start(gate)
    wired.client.sendall(b"first.")
    await asyncio.sleep(0.01)
    wired.client.sendall(b" second.")
    wired.client.shutdown(socket.SHUT_WR)
    wired.server.shutdown(socket.SHUT_WR)
    got = b""
    while data := await asyncio.to_thread(wired.server.recv, 100):
        got += data
    assert got == b"kept first. second."
    assert asked == 2
    await relay
    wired.close()


async def test_what_the_gate_gives_at_the_end_goes_before_the_end() -> None:
    wired = Wired()
    held = b""

    def gate(data: bytes) -> bytes:
        nonlocal held
        held += data
        return b"" if data else held

    relay = wired.start(gate)
    send_all(wired.client, b"last words")
    assert await asyncio.to_thread(receive_all, wired.server) == (10, hashlib.sha256(b"last words").hexdigest())
    wired.server.shutdown(socket.SHUT_WR)
    await relay
    assert wired.meter.up == 10
    wired.close()


async def test_the_gate_may_hand_the_connection_to_somebody_else() -> None:
    wired = Wired()
    relay = wired.start(lambda _data: None, close=False)
    wired.client.sendall(b"GET /")
    await relay
    wired.client.sendall(b" HTTP/1.1")
    assert await wired.inner[0].read() == b" HTTP/1.1"
    wired.close()


async def test_a_cancelled_relay_leaves_no_handler_behind() -> None:
    wired = Wired()
    relay = wired.start()
    await asyncio.sleep(0)
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)
    assert all(stream.on_readable is None and stream.on_writable is None for stream in wired.inner)
    wired.close()
