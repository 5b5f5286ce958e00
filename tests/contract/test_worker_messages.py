"""How many messages a lease costs, over real gRPC: what nobody waits for travels with what comes next."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.fleet_server_harness import PATIENCE, FleetServerHarness, HandWorker, open_harness
from palyra.fleet.server import lease_service
from palyra.wire.worker.v1 import worker_pb2 as wire


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[FleetServerHarness]:
    async with asyncio.timeout(4 * PATIENCE), open_harness(tmp_path) as opened:
        yield opened


@pytest.fixture
async def worker(harness: FleetServerHarness) -> AsyncIterator[HandWorker]:
    made = await harness.worker()
    yield await made.online()
    await made.close()


async def kinds_of_next(worker: HandWorker) -> list[str]:
    """What the next message has in it."""
    batch = await asyncio.wait_for(worker.call.read(), PATIENCE)
    worker.heard += batch.commands
    return [command.WhichOneof("command") for command in batch.commands]


async def test_in_busy_times_an_answer_comes_with_the_next_lease_and_a_lease_answers_a_heartbeat(
    harness: FleetServerHarness, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_service, "BUSY_LEASES_A_SECOND", 0)
    first = harness.call(call_id="01CALL1")
    assert await kinds_of_next(worker) == ["lease"]
    await worker.say(settlement=worker.settlement(await worker.receive("lease")))
    assert (await first).settled.result == {"text": "hi"}
    # Nothing but the lease was sent since it connected: that is answer enough.
    await worker.say(heartbeat=wire.Heartbeat(slots=4))
    second = harness.call(call_id="01CALL2")
    assert await kinds_of_next(worker) == ["settlement_answer", "lease"]
    await worker.say(settlement=worker.settlement(await worker.receive("lease")))
    await second
    # Something was sent since the last heartbeat, and nothing since this one.
    for _ in range(2):
        await worker.say(heartbeat=wire.Heartbeat(slots=4))
    assert await kinds_of_next(worker) == ["settlement_answer", "heartbeat_ack"]


async def test_a_worker_that_winds_down_and_one_that_is_refused_hear_it_at_once(
    harness: FleetServerHarness, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_service, "BUSY_LEASES_A_SECOND", 0)
    call = harness.call()
    offer = await worker.receive("lease")
    await worker.say(settlement=worker.settlement(offer))
    await call
    await worker.say(heartbeat=wire.Heartbeat(slots=0))
    assert await kinds_of_next(worker) == ["settlement_answer", "heartbeat_ack"]
    await worker.receive("settlement_answer")
    assert (await worker.settle(offer)).code == "lease.duplicate_result"


async def test_a_worker_is_told_that_it_counts_before_it_is_offered_anything_again(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    """One that was not told yet could not even decline, and the lease would stay with nobody until its deadline."""
    call = harness.call()
    await worker.receive("lease")
    await worker.hang_up()
    await worker.open()
    await worker.say(attestation=worker.attestation((await worker.receive("challenge")).nonce))
    said: list[str] = []
    while "lease" not in said:
        said += await kinds_of_next(worker)
    assert said.index("attestation_answer") < said.index("lease")
    assert (await worker.settle(await worker.receive("lease"))).code == ""
    await call


async def test_workspaces_counted_before_a_report_are_not_held_against_it(
    harness: FleetServerHarness, worker: HandWorker
) -> None:
    call = harness.call()
    offer = await worker.receive("lease")
    await worker.say(heartbeat=wire.Heartbeat(workspaces=1, slots=4))
    assert (await worker.settle(offer)).code == ""
    await call
    await harness.parts.sessions.batcher.settle()
    assert worker.record().state.value == "available"
    # Said after the report it contradicts it.
    await worker.say(heartbeat=wire.Heartbeat(workspaces=1, slots=4))
    await eventually(lambda: worker.record().reason == "worker_cleanup.contradicted")
