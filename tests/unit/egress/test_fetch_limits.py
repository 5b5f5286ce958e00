from palyra.egress import limits
from palyra.limits import MAX_TOOL_OUTPUT_BYTES


def test_the_bounds_fit_each_other() -> None:
    assert limits.DEFAULT_MAX_BYTES <= limits.MAX_MAX_BYTES
    # Even if base64 makes a third more of it, the default fits one call's output.
    assert limits.DEFAULT_MAX_BYTES * 4 // 3 < MAX_TOOL_OUTPUT_BYTES
    assert limits.SCAN_AHEAD_BYTES > limits.MAX_HEADER_VALUE_CHARS
    assert limits.MAX_REQUEST_HEAD_BYTES > limits.MAX_URL_CHARS + limits.MAX_HEADER_VALUE_CHARS
    assert limits.HOP_OVERHEAD_BYTES > limits.MAX_REQUEST_HEAD_BYTES
