"""Limits: the relations between bounds that the code relies on."""

import json

import pytest

from palyra import limits


def test_every_bound_is_a_positive_number() -> None:
    bounds = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert len(bounds) > 20
    assert all(type(value) in (int, float) and value > 0 for value in bounds.values())


@pytest.mark.promise("P-limits")
def test_tool_inputs_are_bounded_as_documented() -> None:
    assert limits.MAX_TOOL_INPUT_BYTES == 64 * 1024
    assert limits.MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES == 128 * 1024
    assert limits.MAX_PLUGIN_TOOL_INPUT_BYTES == 448 * 1024


@pytest.mark.promise("P-limits")
def test_the_largest_tool_input_fits_a_request_when_escaped_as_a_json_string() -> None:
    document = json.dumps({"k": "v" * (limits.MAX_PLUGIN_TOOL_INPUT_BYTES - 16)}, separators=(",", ":"))
    body = json.dumps({"tool": "plugin.run", "arguments_json": document})
    assert len(body) <= limits.MAX_HTTP_BODY_BYTES


def test_a_default_deadline_is_one_a_caller_may_ask_for() -> None:
    assert limits.DEFAULT_CALL_TIMEOUT_MS <= limits.MAX_CALL_TIMEOUT_MS
    assert limits.DEFAULT_RUN_WALL_MS >= limits.MAX_CALL_TIMEOUT_MS


def test_strings_and_payloads_of_the_journal_fit_into_each_other() -> None:
    assert limits.MAX_JOURNAL_STRING_CHARS * 6 < limits.MAX_EVENT_PAYLOAD_BYTES
    assert limits.JOURNAL_DISK_RESERVE_BYTES >= limits.MAX_EVENT_PAYLOAD_BYTES


def test_counts_stay_within_what_json_numbers_carry_exactly() -> None:
    counts = [value for name, value in vars(limits).items() if name.startswith(("MAX_", "DEFAULT_"))]
    assert max(counts) < 2**53
