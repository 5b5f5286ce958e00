"""A thousand calls on three workers in networks of their own. Run with `make soak-tests`."""

import time
from pathlib import Path

import pytest

from fakes.fleet_of_three import live_through

CALLS = 1_000


@pytest.mark.promise("P-worker-once")
@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_thousand_calls_end_once_while_workers_are_drained_cut_off_and_killed(tmp_path: Path) -> None:
    begun = time.monotonic()
    how = live_through(tmp_path, CALLS)
    print(f"{how.total()} calls in {time.monotonic() - begun:.0f} s: {dict(how)}")
