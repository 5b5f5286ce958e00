import msgspec
import pytest

from fakes.node_state_harness import code_record, node_record, pairing_record, request_record
from palyra.nodes.domain.records import CodeState, PairingState, RequestState


@pytest.mark.parametrize("record", [code_record(), pairing_record(), node_record(), request_record()], ids=type)
def test_a_record_with_a_field_nobody_knows_is_not_half_understood(record):
    raw = msgspec.json.encode({**msgspec.to_builtins(record, str_keys=True, enc_hook=str), "newer": 1}, enc_hook=str)
    with pytest.raises(msgspec.ValidationError, match="newer"):
        msgspec.json.decode(raw, type=type(record))


@pytest.mark.parametrize(
    ("state", "in_force"),
    [(CodeState.LIVE, True), (CodeState.USED, True), (CodeState.BURNED, False), (CodeState.WITHDRAWN, False)],
)
def test_a_code_is_in_force_until_it_ends_or_its_time_is_up(state, in_force):
    code = code_record(state=state, expires_ms=100)
    assert code.in_force(99) is in_force
    assert code.ended(99) is not in_force
    assert not code.in_force(100)


def test_what_is_open_is_what_can_still_change():
    assert [state for state in PairingState if pairing_record(state=state).open()] == ["pending_approval", "approved"]
    open_requests = [state for state in RequestState if request_record(state=state).open()]
    assert open_requests == ["queued", "dispatched", "awaiting_local_mediation"]


def test_no_record_shows_what_proves_a_code():
    code = code_record()
    assert code.stretched.hash.hex() not in repr(code) and repr(code.stretched.hash) not in repr(code)
