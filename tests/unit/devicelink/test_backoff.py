"""Waiting before the next try."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.devicelink import limits
from palyra.devicelink.agent.backoff import Backoff


def after(failures: int) -> Backoff:
    backoff = Backoff()
    for _ in range(failures):
        backoff = backoff.failed()
    return backoff


def test_the_first_try_comes_at_once_and_later_ones_ever_later() -> None:
    assert Backoff().delay_ms(1.0) == 0
    delays = [after(failures).delay_ms(1.0) for failures in range(1, 12)]
    assert delays[0] == limits.FIRST_DELAY_MS and delays[-1] == limits.LONGEST_DELAY_MS
    assert delays == sorted(delays)


@pytest.mark.promise("P-limits")
@given(st.integers(min_value=1, max_value=10**9), st.floats(min_value=0, max_value=1))
def test_half_is_sure_and_half_is_chance_however_often_it_failed(failures: int, draw: float) -> None:
    delay = Backoff(failures=failures).delay_ms(draw)
    assert limits.FIRST_DELAY_MS // 2 <= delay <= limits.LONGEST_DELAY_MS
    assert Backoff(failures=failures).delay_ms(0) <= delay <= Backoff(failures=failures).delay_ms(1)
