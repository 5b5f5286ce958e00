import asyncio
import socket

import pytest

from fakes.egress_harness import socket_pair
from palyra.egress.domain.grant import ByteBudget, Meter
from palyra.egress.domain.refusal import ByteBudgetSpent
from palyra.egress.proxy.socket_stream import SocketStream


async def test_bytes_put_back_come_first_and_in_order() -> None:
    stream, other = socket_pair()
    other.sendall(b"later")
    stream.unread(b"second ")
    stream.unread(b"first ")
    assert await stream.read(6) == b"first "
    assert await stream.read() == b"second "
    assert await stream.read() == b"later"
    stream.close()
    other.close()


async def test_a_read_waits_for_bytes_and_sees_the_end() -> None:
    stream, other = socket_pair()
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0.01)
    assert not reading.done()
    other.sendall(b"now")
    assert await reading == b"now"
    other.close()
    assert await stream.read() == b""
    stream.close()


async def test_a_write_waits_for_a_reader_that_is_slow() -> None:
    stream, other = socket_pair()
    other.setblocking(False)
    data = bytes(range(256)) * 20_000
    writing = asyncio.ensure_future(stream.write(data))
    got = b""
    loop = asyncio.get_running_loop()
    while len(got) < len(data):
        got += await loop.sock_recv(other, 100_000)
    await writing
    assert got == data
    stream.close()
    other.close()


async def test_a_cancelled_read_loses_nothing() -> None:
    stream, other = socket_pair()
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    other.sendall(b"kept")
    assert await stream.read() == b"kept"
    stream.close()
    other.close()


async def test_a_metered_stream_counts_and_stops_at_the_budget() -> None:
    meter = Meter(ByteBudget(10))
    stream, other = socket_pair(meter)
    await stream.write(b"1234")
    other.sendall(b"abcdefgh")
    assert await stream.read() == b"abcdef"
    assert (meter.up, meter.down) == (4, 6)
    with pytest.raises(ByteBudgetSpent):
        await stream.read()
    with pytest.raises(ByteBudgetSpent):
        await stream.write(b"5")
    stream.close()
    other.close()


async def test_a_budget_that_is_just_enough_sees_the_end() -> None:
    stream, other = socket_pair(Meter(ByteBudget(3)))
    other.sendall(b"abc")
    other.close()
    assert await stream.read() == b"abc"
    assert await stream.read() == b""
    stream.close()


async def test_a_kept_connection_is_unfit_once_anything_came() -> None:
    stream, other = socket_pair()
    assert not stream.has_ended()
    other.sendall(b"!")
    assert stream.has_ended()
    other.close()
    stream.close()


async def test_a_reset_is_a_reset() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listening.getsockname())
    accepted, _ = listening.accept()
    SocketStream(accepted, asyncio.get_running_loop()).reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    client.close()
    listening.close()
