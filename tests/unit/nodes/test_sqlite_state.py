"""What SQL does beyond the port's conformance suite (tests/contract/test_node_state_port.py)."""

import pytest

from fakes.node_state_harness import NodeStateHarness, node_record
from palyra.nodes.store.port import NodeStateUnreadable


async def test_a_record_of_a_newer_program_is_refused_and_left_alone(tmp_path):
    harness = NodeStateHarness(tmp_path, "sql")
    store = harness.store()
    state = await harness.state(store)
    record = node_record()
    await state.transact(lambda unit: unit.nodes.put(record))
    newer = b'{"id":"x","newer":1}'
    await store.transact(lambda tx: tx.execute("UPDATE node_state SET record = ?", (newer,)))
    for look in (lambda unit: unit.nodes.list(), lambda unit: unit.nodes.get(record.id)):
        with pytest.raises(NodeStateUnreadable):
            state.read(look)
    assert store.read("SELECT record FROM node_state") == [(newer,)]
    harness.close()


async def test_shelves_do_not_mix(tmp_path):
    harness = NodeStateHarness(tmp_path, "sql")
    state = await harness.state()
    record = node_record()
    await state.transact(lambda unit: unit.nodes.put(record))
    assert state.read(lambda unit: [unit.codes.get(record.id), unit.requests.list(), unit.pairings.list()]) == [
        None,
        [],
        [],
    ]
    harness.close()
