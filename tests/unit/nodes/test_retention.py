from fakes.node_state_harness import code_record, pairing_record, request_record
from palyra.devicelink.limits import MAX_ENDED_CODES, MAX_ENDED_PAIRINGS, MAX_FINISHED_REQUESTS
from palyra.nodes.domain.records import CodeState, PairingState, RequestState
from palyra.nodes.store.document import DocumentUnit, NodeDocument


def dropped(shelf: str, records, now_ms=0):
    """The ids that a unit drops when one of these records changes."""
    unit = DocumentUnit(NodeDocument(**{shelf: {record.id: record for record in records}}), now_ms, lambda event: None)
    getattr(unit, shelf).put(records[0])
    return sorted({record.id for record in records} - set(getattr(unit.outcome(), shelf)))


def test_the_oldest_ended_go_and_the_open_stay_however_old():
    requests = [request_record(id="0")] + [
        request_record(id=f"{n:05d}", state=RequestState.FAILED) for n in range(1, MAX_FINISHED_REQUESTS + 4)
    ]
    assert dropped("requests", requests[::-1]) == ["00001", "00002", "00003"]
    pairings = [pairing_record(id="0")] + [
        pairing_record(id=f"{n:05d}", state=PairingState.COMPLETED) for n in range(1, MAX_ENDED_PAIRINGS + 2)
    ]
    assert dropped("pairings", pairings) == ["00001"]


def test_codes_end_by_state_or_by_time():
    live = code_record(id="0", expires_ms=200)
    ended = [code_record(id=f"{n:05d}", expires_ms=100) for n in range(1, MAX_ENDED_CODES)]
    burned = [code_record(id=f"9{n}", state=CodeState.BURNED, expires_ms=200) for n in range(3)]
    assert dropped("codes", [live, *ended, *burned], 150) == ["00001", "00002"]
    assert dropped("codes", [live, *ended, *burned], 50) == []
