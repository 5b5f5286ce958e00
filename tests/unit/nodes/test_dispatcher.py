"""The dispatcher on a real store, with lines that only note what was sent on them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.node_server_harness import ECHO, PATIENCE, PRINT, MovedClock
from fakes.node_state_harness import NodeStateHarness, node_record, request_record
from palyra.devicelink.server import connections
from palyra.devicelink.server.connections import Connected, NodeRegistry
from palyra.errors import PalyraError
from palyra.identity.device import DeviceId
from palyra.nodes.domain.records import RequestState
from palyra.nodes.domain.requests import Refused, Succeeded
from palyra.nodes.server.dispatcher import Cancel, CapabilityCall, CertificateNews, Command, Dispatch, Dispatcher
from palyra.nodes.store.port import NodeState

DEVICE = DeviceId.new()


class NotedLine:
    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.ended: list[tuple[str, bool]] = []
        self.news = asyncio.Event()

    def send(self, command: Command) -> None:
        self.sent.append(command)
        self.news.set()

    def end(self, code: str, message: str) -> None:
        self.ended.append((code, False))

    def cut(self, code: str) -> None:
        self.ended.append((code, True))

    async def next(self, kind: type) -> Any:
        async with asyncio.timeout(PATIENCE):
            while not (found := [one for one in self.sent if isinstance(one, kind)]):
                self.news.clear()
                await self.news.wait()
        self.sent.remove(found[0])
        return found[0]


class Room:
    def __init__(self, state: NodeState, clock: MovedClock) -> None:
        self.state, self.clock = state, clock
        self.registry = NodeRegistry()
        self.ends: list[str] = []
        self.dispatcher = Dispatcher(
            state=state,
            registry=self.registry,
            clock=clock,
            instance="this",
            max_result_bytes=100,
            heartbeat_timeout=10.0,
            on_ended=self.ends.append,
        )

    def connect(self, generation: int = 1, device: DeviceId = DEVICE) -> tuple[Connected, NotedLine]:
        connected = Connected(
            device_id=device, fingerprint="ab", generation=generation, since_ms=1, received_at=self.clock.monotonic()
        )
        line = NotedLine()
        self.dispatcher.attach(connected, line)
        return connected, line

    def ask(self, capability: Any = ECHO, timeout_ms: int = 30_000) -> "asyncio.Task[bytes]":
        ask = CapabilityCall(
            device_id=DEVICE,
            capability=capability,
            input_json=b"{}",
            input_digest="00",
            timeout_ms=timeout_ms,
            principal="agent:a",
        )
        return asyncio.create_task(self.dispatcher.invoke(ask))

    def requests(self) -> list[Any]:
        return list(self.state.read(lambda unit: unit.requests.list()))


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    clock = MovedClock()
    harness = NodeStateHarness(tmp_path, clock=clock)
    state = await harness.state()
    await state.transact(lambda unit: unit.nodes.put(node_record(id=DEVICE)))
    yield Room(state, clock)
    harness.close()


async def code_of(asked: "asyncio.Task[bytes]") -> str:
    with pytest.raises(PalyraError) as failed:
        await asked
    return failed.value.code


async def test_nothing_is_sent_before_it_is_on_disk(room: Room) -> None:
    _, line = room.connect()
    asked = room.ask()
    sent = await line.next(Dispatch)
    (stored,) = room.requests()
    assert (stored.id, stored.state) == (sent.request_id, RequestState.DISPATCHED) and sent.max_result_bytes == 100
    await room.dispatcher.take_result(DEVICE, sent.request_id, Succeeded(b"1"))
    assert await asked == b"1" and room.ends == ["succeeded"]


async def test_on_one_line_a_request_is_given_once(room: Room) -> None:
    """It registers while a request is on its way to the disk: reunion and invoke both want to send it."""
    room.connect()
    asked = room.ask(PRINT)
    await eventually(lambda: room.requests(), every=0)
    assert await room.dispatcher.reunite(DEVICE, ()) == ()
    _, line = room.connect()
    await asyncio.gather(room.dispatcher.resume(DEVICE), room.dispatcher.resume(DEVICE))
    sent = await line.next(Dispatch)
    assert not [one for one in line.sent if isinstance(one, Dispatch)]
    await room.dispatcher.take_result(DEVICE, sent.request_id, Succeeded(b"1"))
    await asked


async def test_a_newer_line_replaces_the_older_which_takes_nothing_with_it(room: Room) -> None:
    first, old = room.connect(1)
    second, new = room.connect(2)
    assert old.ended == [(connections.REPLACED, False)] and not room.dispatcher.detach(first)
    asked = room.ask()
    sent = await new.next(Dispatch)
    assert old.sent == []
    with pytest.raises(PalyraError, match="newer certificate"):
        room.connect(1)
    await room.dispatcher.take_result(DEVICE, sent.request_id, Refused(rejected=False, code="c", message="m"))
    assert await code_of(asked) == "nodes.device_failed" and room.dispatcher.detach(second)


async def test_a_result_that_was_on_its_way_to_the_disk_when_time_was_up_counts(room: Room) -> None:
    _, line = room.connect()
    asked = room.ask(timeout_ms=150)
    sent = await line.next(Dispatch)
    # Both at once, as late as can be: whichever is first on disk is how it ended, for everybody.
    await asyncio.sleep(0.14)
    outcome = await asyncio.gather(
        room.dispatcher.take_result(DEVICE, sent.request_id, Succeeded(b"1")), asked, return_exceptions=True
    )
    (stored,) = room.requests()
    if stored.state is RequestState.SUCCEEDED:
        assert outcome == [None, b"1"]
    else:
        assert [getattr(one, "code", None) for one in outcome] == ["nodes.result_late", "nodes.timed_out"]


async def test_a_device_that_is_gone_is_cut_and_its_requests_fail(room: Room) -> None:
    _, line = room.connect()
    asked = room.ask()
    await line.next(Dispatch)
    room.dispatcher.end_device(DEVICE, "identity.locked")
    assert line.ended == [("identity.locked", True)]
    await room.dispatcher.tend_once()
    assert await code_of(asked) == "nodes.device_gone" and room.ends == ["failed"]
    room.dispatcher.end_device(DeviceId.new(), "identity.revoked")
    await room.dispatcher.tend_once()


async def test_tending_ends_silence_and_what_nobody_waits_for(room: Room) -> None:
    _, line = room.connect()
    orphan = request_record(device_id=DEVICE, state=RequestState.DISPATCHED, dispatched_ms=1, deadline_ms=5)
    await room.state.transact(lambda unit: unit.requests.put(orphan))
    await room.dispatcher.tend_once()
    assert room.requests()[0].state is RequestState.TIMED_OUT and room.ends == ["timed_out"]
    assert (await line.next(Cancel)).request_id == orphan.id and line.ended == []
    room.clock.ahead_ms += 11_000
    await room.dispatcher.tend_once()
    assert line.ended == [(connections.SILENT, False)]


async def test_tending_goes_on_and_looks_at_once_when_a_device_is_gone(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = asyncio.Event(), room.dispatcher.tend_once

    async def noted() -> None:
        await look()
        looked.set()

    monkeypatch.setattr(room.dispatcher, "tend_once", noted)
    tending = asyncio.create_task(room.dispatcher.tend())
    await looked.wait()
    _, line = room.connect()
    asked = room.ask()
    await line.next(Dispatch)
    room.dispatcher.end_device(DEVICE, "identity.revoked")
    assert await code_of(asked) == "nodes.device_gone"
    tending.cancel()
    await asyncio.wait([tending])


async def test_a_device_without_requests_costs_no_write(room: Room) -> None:
    for _ in range(3):
        assert await room.dispatcher.reunite(DEVICE, ("x",)) == ("x",)
    asked = room.ask()
    await eventually(lambda: room.requests(), every=0)
    assert await room.dispatcher.reunite(DEVICE, (room.requests()[0].id,)) == (room.requests()[0].id,)
    asked.cancel()
    await asyncio.wait([asked])
    assert await room.dispatcher.reunite(DEVICE, ()) == ()


async def test_everybody_hears_of_news_and_of_the_end(room: Room) -> None:
    lines = [room.connect()[1], room.connect(device=DeviceId.new())[1]]
    room.dispatcher.announce(b"pem")
    room.dispatcher.end_all()
    for line in lines:
        assert await line.next(CertificateNews) == CertificateNews(b"pem", True)
        assert line.ended == [(connections.STOPPING, False)]
