from palyra.devicelink import limits as rpc_limits
from palyra.fleet import limits
from palyra.fleet import limits as fleet
from palyra.limits import MAX_TOOL_OUTPUT_BYTES


def test_the_largest_settlement_fits_a_message_and_a_note() -> None:
    assert limits.MAX_MESSAGE_BYTES <= rpc_limits.MAX_MESSAGE_BYTES
    assert limits.MAX_SETTLEMENT_BYTES < limits.MAX_MESSAGE_BYTES
    assert MAX_TOOL_OUTPUT_BYTES < limits.MAX_SETTLEMENT_BYTES
    assert 2 * MAX_TOOL_OUTPUT_BYTES < limits.MAX_NOTE_BYTES


def test_a_worker_offers_no_more_than_the_fleet_knows() -> None:
    assert limits.DEFAULT_SLOTS <= fleet.MAX_SLOTS == limits.MAX_OPEN_LEASES
