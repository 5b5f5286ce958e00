from palyra.limits import MAX_TOOL_OUTPUT_BYTES
from palyra.workspace import limits

# What one character may become in JSON, and what a UTF-8 character may need.
_ESCAPED = 6


def test_a_default_read_fits_in_an_answer_however_it_is_escaped() -> None:
    assert limits.DEFAULT_READ_BYTES * _ESCAPED < MAX_TOOL_OUTPUT_BYTES
    assert limits.MAX_READ_BYTES * 4 // 3 < MAX_TOOL_OUTPUT_BYTES


def test_defaults_lie_within_their_maxima() -> None:
    assert limits.DEFAULT_READ_BYTES <= limits.MAX_READ_BYTES <= limits.WHOLE_FILE_BYTES
    assert limits.DEFAULT_LIST_ENTRIES <= limits.MAX_LIST_ENTRIES
    assert limits.DEFAULT_MATCHES <= limits.MAX_MATCHES
    assert limits.SEARCH_SECONDS < limits.REGEX_CPU_SECONDS
