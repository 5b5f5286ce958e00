"""Time: whole milliseconds, one spelling, and a monotonic reading for durations."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.clock import SystemClock, rfc3339

YEAR_9999_MS = 253_402_300_799_999


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (1_794_789_323_123, "2026-11-16T00:35:23.123Z"),
        (YEAR_9999_MS, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_instants_have_one_spelling(instant: int, text: str) -> None:
    assert rfc3339(instant) == text


@given(st.integers(0, YEAR_9999_MS), st.integers(0, YEAR_9999_MS))
def test_text_sorts_as_time_does_and_loses_nothing(first: int, second: int) -> None:
    assert (rfc3339(first) < rfc3339(second)) == (first < second)
    parsed = datetime.fromisoformat(rfc3339(first))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert round((parsed - epoch).total_seconds() * 1000) == first


def test_the_system_clock_reads_both_clocks_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_794_789_323_123_999_999)
    clock = SystemClock()
    assert clock.now_ms() == 1_794_789_323_123
    before = time.monotonic()
    assert before <= clock.monotonic() <= time.monotonic()
