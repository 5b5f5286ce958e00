"""The bounds keep what they promise about each other."""

from palyra.limits import MAX_EVENT_PAYLOAD_BYTES, MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES
from palyra.policy import limits


def test_bounds_are_ordered() -> None:
    assert limits.MAX_POLICY_FILE_BYTES <= limits.MAX_BUNDLE_BYTES
    assert limits.MAX_CACHED_ENTITY_BYTES <= limits.MAX_REQUEST_BYTES
    assert limits.MAX_REQUEST_BYTES >= 2 * MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES
    assert limits.MAX_REQUEST_BYTES > MAX_EVENT_PAYLOAD_BYTES
