import pytest

from fakes.node_state_harness import code_record, node_record, request_record
from palyra.devicelink.limits import MAX_FINISHED_REQUESTS
from palyra.nodes.domain.records import RequestState
from palyra.nodes.store.document import DocumentUnit, NodeDocument
from palyra.nodes.store.port import ReadOnlyUnit
from palyra.store.event import NewEvent


def test_a_unit_changes_its_own_copy_only():
    kept = node_record()
    document = NodeDocument(revision=3, nodes={kept.id: kept})
    unit = DocumentUnit(document, 5, lambda event: None)
    unit.nodes.delete(kept.id)
    added = code_record()
    unit.codes.put(added)
    outcome = unit.outcome()
    assert (outcome.revision, outcome.nodes, outcome.codes) == (4, {}, {added.id: added})
    assert document == NodeDocument(revision=3, nodes={kept.id: kept})


def test_what_only_reads_has_no_outcome():
    unit = DocumentUnit(NodeDocument(), 5, lambda event: None)
    unit.nodes.list(), unit.nodes.get("x"), unit.nodes.delete("x")
    assert unit.outcome() is None


def test_a_look_refuses_every_change():
    unit = DocumentUnit(NodeDocument(), 5, None)
    with pytest.raises(ReadOnlyUnit):
        unit.codes.put(code_record())
    with pytest.raises(ReadOnlyUnit):
        unit.append(NewEvent(kind="a.b", actor="x"))


def test_events_go_where_they_should():
    appended = []
    DocumentUnit(NodeDocument(), 5, appended.append).append(NewEvent(kind="a.b", actor="x"))
    assert [event.kind for event in appended] == ["a.b"]


def test_the_outcome_is_within_bounds():
    unit = DocumentUnit(NodeDocument(), 5, lambda event: None)
    for _ in range(MAX_FINISHED_REQUESTS + 3):
        unit.requests.put(request_record(state=RequestState.TIMED_OUT))
    assert len(unit.outcome().requests) == MAX_FINISHED_REQUESTS
