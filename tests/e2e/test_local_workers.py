"""``palyra up --workers``: workers on this machine with their proxies, paired by the daemon itself."""

import signal
import subprocess
from pathlib import Path

from fakes.daemon import PALYRA, Answer, Place
from fakes.eventually import eventually_sync

SETTINGS = """
[tools]
allowed = ["*"]
preapproved = ["*"]
[workers]
heartbeat_seconds = 0.3
heartbeat_timeout_seconds = 3.0
"""


def _start(place: Place, workers: int) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [*PALYRA, "up", "--port", "0", "--no-browser", "--workers", str(workers), "--json"],
        env=place.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline()
    return process


def _echo(place: Place) -> Answer:
    return place.palyra("call", "echo", "--tier", "worker", "--input", '{"text":"hi"}', "--json")


def test_workers_are_started_paired_and_used_also_the_next_time(tmp_path: Path) -> None:
    place = Place(tmp_path / "home", SETTINGS)
    for workers in (2, 1):
        process = _start(place, workers)
        try:
            eventually_sync(lambda: _echo(place).status == 0, seconds=90)
            ran = _echo(place).data
            assert ran["result"] == {"text": "hi"} and ran["receipt"][0]["layer"] == "worker_lease"
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(90) == 0
            assert process.stdout is not None
            process.stdout.close()
    # The same two workers and their two proxies, not new ones.
    listed = place.palyra("pair", "list", "--json").data["pairings"]
    assert sorted(each["kind"] for each in listed) == ["egress", "egress", "worker", "worker"]
