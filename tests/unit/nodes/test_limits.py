from palyra.devicelink import limits as rpc_limits
from palyra.devicelink.limits import DECISION_WAIT_MS, MAX_CAPABILITIES, MAX_PAIRING_WAIT_MS
from palyra.nodes import limits


def test_a_device_stays_within_what_the_daemon_takes() -> None:
    assert limits.MAX_OPEN <= rpc_limits.MAX_OPEN_REQUEST_IDS
    assert limits.MAX_COMMANDS + 4 <= MAX_CAPABILITIES
    assert DECISION_WAIT_MS <= MAX_PAIRING_WAIT_MS
    assert limits.MAX_RESULT_BYTES >= rpc_limits.MAX_RESULT_BYTES
    assert (
        limits.SILENT_INTERVALS * rpc_limits.DEFAULT_HEARTBEAT_SECONDS <= rpc_limits.DEFAULT_HEARTBEAT_TIMEOUT_SECONDS
    )
