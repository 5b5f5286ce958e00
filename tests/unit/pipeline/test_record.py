"""What a door shows of a call."""

from typing import Any

import pytest

from palyra.errors import ExitCode
from palyra.pipeline.domain.approval import ApprovalNeeded
from palyra.pipeline.domain.budget import BudgetExhausted
from palyra.pipeline.domain.call import CallDenied, CallRecord, CallState, CallTimedOut


def a_record(**changes: Any) -> CallRecord:
    fields: dict[str, Any] = {
        "call_id": "c",
        "run_id": "r",
        "tool": "echo",
        "principal": "agent:bot",
        "actor": "user:operator",
        "channel": "cli",
        "state": CallState.SUCCEEDED,
        "created_ms": 1_790_000_000_000,
    }
    return CallRecord(**{**fields, **changes})


def test_a_call_that_did_not_start_has_no_times_and_no_duration() -> None:
    shown = a_record(state=CallState.NEEDS_APPROVAL, approval_id="a").view()
    assert shown["status"] == "needs_approval" and shown["approval_id"] == "a"
    assert shown["started_at"] is None and shown["ended_at"] is None and shown["duration_ms"] is None


def test_a_clock_that_went_back_gives_no_negative_duration() -> None:
    shown = a_record(started_ms=1_790_000_000_500, ended_ms=1_790_000_000_100).view()
    assert shown["duration_ms"] == 0
    assert shown["started_at"] == "2026-09-21T14:13:20.500Z"


def test_keys_without_meaning_are_left_away() -> None:
    shown = a_record().view()
    assert "error" not in shown and "approval_id" not in shown
    assert "actor" not in shown, "who holds the connection is the journal's business"


@pytest.mark.parametrize(
    ("error", "status", "exit_code"),
    [
        (CallDenied("no"), 403, ExitCode.DENIED),
        (ApprovalNeeded("ask"), 202, ExitCode.NEEDS_APPROVAL),
        (BudgetExhausted("empty"), 429, ExitCode.LIMIT),
        (CallTimedOut("late"), 504, ExitCode.LIMIT),
    ],
)
def test_a_recorded_error_keeps_its_status_and_exit_code(error: Any, status: int, exit_code: ExitCode) -> None:
    record = a_record(error=error.as_dict())
    assert (record.http_status(), record.exit_code()) == (status, exit_code)


def test_an_error_of_another_version_is_a_failure_and_not_a_success() -> None:
    record = a_record(state=CallState.FAILED, error={"code": "some.later_code", "message": "?", "hint": ""})
    assert (record.http_status(), record.exit_code()) == (500, ExitCode.FAILED)


def test_no_error_is_success() -> None:
    assert (a_record().http_status(), a_record().exit_code()) == (200, ExitCode.DONE)
