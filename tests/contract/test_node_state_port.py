"""What every store of the devices' state must do. A new backend joins ``BACKENDS`` of the fake and passes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fakes.node_state_harness import (
    BACKENDS,
    NodeStateHarness,
    code_record,
    node_record,
    pairing_record,
    request_record,
)
from palyra.devicelink.limits import MAX_ENDED_CODES, MAX_ENDED_PAIRINGS, MAX_FINISHED_REQUESTS
from palyra.nodes.domain.records import CodeState, DeviceCapabilityView, PairingState, RequestState
from palyra.nodes.store.port import ReadOnlyUnit
from palyra.store.event import NewEvent

CHILD = Path(__file__).parent.parent / "fakes" / "node_state_process.py"


@pytest.fixture(params=BACKENDS)
def harness(request, tmp_path):
    harness = NodeStateHarness(tmp_path, request.param)
    yield harness
    harness.close()


def noted(name):
    return NewEvent(kind="nodes.tested", actor="test", payload={"name": name})


def everything(unit):
    return [list(shelf.list()) for shelf in (unit.codes, unit.pairings, unit.nodes, unit.requests)]


def putting(*records):
    def work(unit):
        for record in records:
            shelf_of(unit, record).put(record)

    return work


def shelf_of(unit, record):
    return {
        "DevicePairingCodeRecord": unit.codes,
        "DevicePairingRequestRecord": unit.pairings,
        "NodeRecord": unit.nodes,
        "CapabilityRequestRecord": unit.requests,
    }[type(record).__name__]


async def test_records_come_back_as_they_were_put_also_to_another_process(harness):
    capability = DeviceCapabilityView(name="echo", input_schema_json='{"type":"object"}', withheld=True)
    records = [
        code_record(state=CodeState.USED, wrong_guesses=3, pairing_id="p"),
        pairing_record(decided_by="user:ü", reason='"quoted"\n'),
        node_record(capabilities=(capability,), withheld=("echo", "other"), registered_ms=5),
        request_record(dispatched_ms=7, error_code="a.b"),
    ]
    state = await harness.state()
    await state.transact(putting(*records))
    expected = [[record] for record in records]
    assert state.read(everything) == expected
    other = await harness.state()
    assert other.read(everything) == expected
    assert await other.transact(everything) == expected


async def test_an_empty_state_is_empty(harness):
    state = await harness.state()
    assert state.read(everything) == [[], [], [], []]
    assert state.read(lambda unit: unit.nodes.get("nobody")) is None
    await state.transact(lambda unit: unit.nodes.delete("nobody"))
    assert harness.events() == []


async def test_a_list_is_in_the_order_of_ids(harness):
    state = await harness.state()
    records = [node_record() for _ in range(5)]
    for record in reversed(records):
        await state.transact(putting(record))
    assert state.read(lambda unit: unit.nodes.list()) == sorted(records, key=lambda record: record.id)


async def test_put_replaces_and_delete_removes(harness):
    state = await harness.state()
    record = node_record()
    await state.transact(putting(record))
    renamed = msgspec.structs.replace(record, name="another")
    await state.transact(putting(renamed))
    assert state.read(lambda unit: unit.nodes.list()) == [renamed]
    await state.transact(lambda unit: unit.nodes.delete(record.id))
    assert state.read(lambda unit: unit.nodes.list()) == []


async def test_a_unit_sees_its_own_writes(harness):
    state, record = await harness.state(), node_record()

    def work(unit):
        unit.nodes.put(record)
        assert unit.nodes.get(record.id) == record
        assert unit.nodes.list() == [record]
        unit.nodes.delete(record.id)
        assert unit.nodes.get(record.id) is None
        return "done"

    assert await state.transact(work) == "done"


async def test_an_exception_undoes_records_and_events(harness):
    state, kept = await harness.state(), node_record()
    await state.transact(putting(kept))

    def fails(unit):
        unit.nodes.delete(kept.id)
        unit.codes.put(code_record())
        unit.append(noted("never"))
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await state.transact(fails)
    assert state.read(everything) == [[], [], [kept], []]
    assert harness.events("nodes.tested") == []


async def test_failing_units_between_others_of_one_commit_leave_no_trace(harness):
    state = await harness.state()
    records = [node_record() for _ in range(60)]

    def work(number):
        def inner(unit):
            unit.nodes.put(records[number])
            unit.append(noted(records[number].id))
            if number % 3 == 0:
                raise LookupError(number)

        return inner

    outcomes = await asyncio.gather(*(state.transact(work(n)) for n in range(60)), return_exceptions=True)
    assert [isinstance(outcome, LookupError) for outcome in outcomes] == [n % 3 == 0 for n in range(60)]
    expected = {record.id for number, record in enumerate(records) if number % 3}
    for look in (state, await harness.state()):
        assert {record.id for record in look.read(lambda unit: unit.nodes.list())} == expected
    assert {payload["name"] for _, payload in harness.events("nodes.tested")} == expected


async def test_a_look_changes_nothing(harness):
    state = await harness.state()
    for attempt in (
        lambda unit: unit.nodes.put(node_record()),
        lambda unit: unit.append(noted("x")),
    ):
        with pytest.raises(ReadOnlyUnit):
            state.read(attempt)
    assert state.read(everything) == [[], [], [], []]


async def test_two_holders_of_one_state_lose_nothing_of_each_other(harness):
    states = [await harness.state(), await harness.state()]
    counter = node_record(registered_ms=0)
    await states[0].transact(putting(counter))

    def count(unit):
        record = unit.nodes.get(counter.id)
        unit.nodes.put(msgspec.structs.replace(record, registered_ms=record.registered_ms + 1))

    await asyncio.gather(*(states[number % 2].transact(count) for number in range(100)))
    for state in (*states, await harness.state()):
        assert state.read(lambda unit: unit.nodes.get(counter.id)).registered_ms == 100


async def test_what_ended_is_bounded_and_what_is_open_stays(harness):
    state = await harness.state()
    open_ones = [request_record(), pairing_record(), code_record()]
    ended = [request_record(state=RequestState.SUCCEEDED) for _ in range(MAX_FINISHED_REQUESTS + 10)]
    rejected = [pairing_record(state=PairingState.REJECTED) for _ in range(MAX_ENDED_PAIRINGS + 10)]
    burned = [code_record(state=CodeState.BURNED) for _ in range(MAX_ENDED_CODES + 5)]
    expired = [code_record(expires_ms=1) for _ in range(5)]
    await state.transact(putting(*open_ones, *ended, *rejected, *burned, *expired))
    codes, pairings, _, requests = state.read(everything)
    assert sorted(r.id for r in requests) == sorted([open_ones[0].id, *sorted(r.id for r in ended)[10:]])
    assert sorted(r.id for r in pairings) == sorted([open_ones[1].id, *sorted(r.id for r in rejected)[10:]])
    oldest = sorted(r.id for r in (*burned, *expired))[10:]
    assert sorted(r.id for r in codes) == sorted([open_ones[2].id, *oldest])


def child(harness, *arguments):
    command = [sys.executable, str(CHILD), str(harness.folder), harness.backend, *map(str, arguments)]
    path = os.pathsep.join(sys.path)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})


@pytest.mark.promise("P-device-recovers")
async def test_two_processes_writing_at_once_lose_nothing(harness):
    state, counter = await harness.state(), node_record(registered_ms=0)
    await state.transact(putting(counter))
    children = [child(harness, "count", counter.id, 40) for _ in range(2)]
    for process in children:
        process.communicate(timeout=90)
        assert process.returncode == 0
    assert state.read(lambda unit: unit.nodes.get(counter.id)).registered_ms == 80
    fresh = await harness.state()
    assert fresh.read(lambda unit: unit.nodes.get(counter.id)).registered_ms == 80
    assert len(harness.events("nodes.tested")) == 80
    assert harness.events("nodes.state_recovered") == []


@pytest.mark.promise("P-device-recovers")
@pytest.mark.parametrize("acknowledged", [1, 2, 5, 9, 14])
async def test_a_killed_writer_leaves_a_state_that_tells_the_journals_story(harness, acknowledged):
    counter = node_record(registered_ms=0)
    await (await harness.state()).transact(putting(counter))
    process = child(harness, "count", counter.id, 10_000)
    seen = 0
    for line in process.stdout:
        seen = json.loads(line)
        if seen >= acknowledged:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    state = await harness.state()
    counted = state.read(lambda unit: unit.nodes.get(counter.id)).registered_ms
    assert counted >= seen
    assert len(harness.events("nodes.tested")) == counted
    assert harness.events("nodes.state_recovered") == []
    await state.transact(putting(node_record()))
    assert len((await harness.state()).read(lambda unit: unit.nodes.list())) == 2
