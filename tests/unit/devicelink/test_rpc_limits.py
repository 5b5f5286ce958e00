from palyra.devicelink import limits
from palyra.limits import MAX_TOOL_OUTPUT_BYTES


def test_the_limits_leave_each_other_room() -> None:
    # The largest result fits into a call's, with what is put around it, and into a message twice over.
    assert limits.DEFAULT_MAX_RESULT_BYTES <= limits.MAX_RESULT_BYTES < MAX_TOOL_OUTPUT_BYTES
    assert 1.5 * limits.MAX_RESULT_BYTES < limits.MAX_MESSAGE_BYTES
    assert limits.MAX_INPUT_BYTES < limits.MAX_MESSAGE_BYTES and limits.MAX_INVENTORY_BYTES < limits.MAX_MESSAGE_BYTES
    # A device may lose some heartbeats, and name everything it was given when it is back.
    assert limits.DEFAULT_HEARTBEAT_TIMEOUT_SECONDS >= 3 * limits.DEFAULT_HEARTBEAT_SECONDS
    assert limits.MAX_OPEN_REQUEST_IDS >= limits.MAX_OPEN_REQUESTS_PER_DEVICE
    assert limits.MAX_WAITING_COMMANDS >= 2 * limits.MAX_OPEN_REQUESTS_PER_DEVICE
