"""A worker that lies."""

import asyncio
import contextlib
import socket

import msgspec
import pytest

from fakes.eventually import eventually
from fakes.wasm_guests import ECHO, open_runtime, wasm
from palyra.wasm.domain.frames import Answer, Done, Loaded, Ready, Unload, packets
from palyra.wasm.domain.outcome import WorkerLost
from palyra.wasm.process.pool import LinkBroken, WorkerLink


class FakeProcess:
    def __init__(self):
        self.killed = False

    def kill(self):
        self.killed = True

    def close(self):
        pass


@pytest.fixture
async def pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    process = FakeProcess()
    link = WorkerLink(ours, process)
    yield link, theirs, process
    link.close()
    theirs.close()


async def test_frames_come_in_order_and_the_end_is_told(pair):
    link, theirs, _ = pair
    for digest in (b"a", b"b"):
        for packet in packets(Loaded(digest=digest)):
            theirs.send(packet)
    assert [(await link.receive()).digest for _ in range(2)] == [b"a", b"b"]
    theirs.close()
    with pytest.raises(LinkBroken, match="ended"):
        await link.receive()
    with pytest.raises(LinkBroken):
        await link.send(Unload(digest=b""))
    assert not link.waits()


@pytest.mark.parametrize(
    "packet",
    [
        b"\0garbage",
        b"\x05",
        b"\1" + bytes(60_000),
        b"\0" + msgspec.msgpack.encode([1, b"", "core", 1, None]),
        b"\0\xc1",
    ],
)
async def test_a_worker_that_does_not_keep_the_protocol_is_killed(pair, packet):
    link, theirs, process = pair
    theirs.setblocking(False)
    while link.broken is None:
        with contextlib.suppress(BlockingIOError):
            theirs.send(packet)
        await asyncio.sleep(0)
    with pytest.raises(LinkBroken):
        await link.receive()
    assert process.killed


async def test_a_worker_that_talks_without_being_asked_is_killed(pair):
    link, theirs, process = pair
    for _ in range(20):
        theirs.send(packets(Loaded(digest=b""))[0])
    await eventually(lambda: link.broken is not None)
    assert process.killed
    assert not link.waits()


async def test_a_full_socket_is_waited_for(pair):
    link, theirs, _ = pair
    big = Answer(number=1, status=0, result=bytes(3_000_000))
    sending = asyncio.create_task(link.send(big))
    await asyncio.sleep(0.01)
    assert not sending.done()
    received = 0
    while received < 3_000_000:
        received += len(await asyncio.to_thread(theirs.recv, 100_000)) - 1
    await sending


DONE = Done(
    kind="",
    message="",
    output=b"",
    fuel_used=0,
    peak_memory_bytes=0,
    duration_us=0,
    host_calls=0,
    logs=(),
    logs_dropped=0,
    spent=False,
)


@pytest.mark.parametrize("answer", [Ready(version=1, engine=""), Loaded(digest=b"another"), DONE])
async def test_a_wrong_answer_to_a_load_or_a_call_is_a_lost_worker(tmp_path, answer):
    async with open_runtime(tmp_path) as runtime:
        module = await runtime.compile(wasm(ECHO))
        link = await runtime.pool.take(b"", 5)

        async def wrong():
            return answer

        link.receive = wrong
        runtime.pool.release(link)
        link.waits = lambda: True
        if isinstance(answer, Done):
            link.loaded[bytes.fromhex(module.digest)] = None
            link.receive = lambda: _later(Loaded(digest=b""))
        with pytest.raises(WorkerLost):
            await runtime.run(module, input=b"x")
        assert (await runtime.run(module, input=b"x")).output == b"x"


async def _later(frame):
    return frame
