"""The browser daemon beside a real ``palyra up``: it comes with it, and goes with it however that ends."""

import json
import os
from pathlib import Path

import pytest

from fakes.daemon import Place
from fakes.eventually import eventually_sync


def pid_of(place: Place) -> int:
    try:
        return int(json.loads((place.state / "browser" / "daemon.json").read_text())["pid"])
    except FileNotFoundError:
        return 0


def runs(pid: int) -> bool:
    """Not one that has died and waits to be buried: its parent may be gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.promise("P-browser-ends")
def test_it_ends_with_a_daemon_that_is_stopped_and_with_one_that_is_killed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for how in ("stop", "kill"):
        with place.daemon(browser=True) as daemon:
            eventually_sync(lambda: pid_of(place), seconds=60)
            pid = pid_of(place)
            assert runs(pid) and pid != os.getpid()
            getattr(daemon, how)()
            eventually_sync(lambda: not runs(pid), seconds=60)  # noqa: B023  used before the next round
        # Also after a kill it ended in order: its address is gone with it.
        assert pid_of(place) == 0
