"""A fleet of three workers in networks of their own, through everything that happens to machines. The same with a
thousand calls is in tests/soak."""

from pathlib import Path

import pytest

from fakes.fleet_of_three import live_through

CALLS = 150


@pytest.mark.promise("P-worker-once")
def test_every_call_ends_once_while_workers_are_drained_cut_off_and_killed(tmp_path: Path) -> None:
    live_through(tmp_path, CALLS)
