"""kill -9 of the daemon while its workers hold fifty leases: the next daemon sees every one of them to its end."""

import contextlib
import json
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually_sync
from fakes.worker_process import DAEMON_SETTINGS, WorkerProcess, join
from palyra.errors import PalyraError

LEASES = 50
HEARTBEAT_TIMEOUT = 8.0
SETTINGS = (
    DAEMON_SETTINGS.replace("timeout_seconds = 3.0", f"timeout_seconds = {HEARTBEAT_TIMEOUT}")
    + "[worker]\nslots = 25\n"
).replace("[workers]", "[workers]\nmax_leases_per_worker = 25")
ENDS = ("lease.settled", "lease.fenced", "lease.expired", "lease.declined")


def events(home: Place) -> list[tuple[str, int, dict[str, Any]]]:
    with closing(sqlite3.connect(f"file:{home.state}/palyra.db?mode=ro", uri=True)) as database, database:
        rows = database.execute("SELECT kind, time_ms, payload FROM events ORDER BY seq").fetchall()
    return [(kind, time_ms, json.loads(payload)) for kind, time_ms, payload in rows]


def ended(home: Place) -> dict[str, str]:
    """How each lease ended, by its id. A second end would be one too many."""
    found: dict[str, str] = {}
    for kind, _, payload in events(home):
        if kind in ENDS:
            assert payload["lease_id"] not in found, "it ended twice"
            found[payload["lease_id"]] = kind
    return found


def held(home: Place) -> list[dict[str, Any]]:
    leases: list[dict[str, Any]] = home.palyra("worker", "leases", "--json").data["leases"]
    return leases


class Sleepers:
    """Callers that hold on until their daemon is gone."""

    def __init__(self, daemon: Daemon, seconds: float) -> None:
        self._threads = [threading.Thread(target=self._call, args=(daemon, seconds)) for _ in range(LEASES)]
        for thread in self._threads:
            thread.start()

    def _call(self, daemon: Daemon, seconds: float) -> None:
        with contextlib.suppress(PalyraError, OSError), daemon.client() as client:
            client.call("sleep", {"seconds": seconds}, tier="worker", timeout_ms=60_000)

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(60)


@pytest.mark.promise("P-worker-once")
def test_every_lease_of_a_killed_daemon_settles_or_is_fenced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Place(tmp_path / "daemon", SETTINGS)
    machines = [Place(tmp_path / name, SETTINGS) for name in ("stays", "dies")]
    daemon, workers = Daemon(home), []
    try:
        ids = [join(home, machine) for machine in machines]
        workers = [WorkerProcess(machine, "run") for machine in machines]
        for worker in workers:
            worker.says("connected and attested")
        sleepers = Sleepers(daemon, 10)
        eventually_sync(lambda: len(held(home)) == LEASES, seconds=60)
        holders = {lease["lease_id"]: lease["worker_id"] for lease in held(home)}
        assert Counter(holders.values()) == dict.fromkeys(ids, LEASES // 2)
        daemon.kill()
        workers[1].kill()
        sleepers.wait()
        assert ended(home) == {}
        daemon = Daemon(home)
        eventually_sync(lambda: len(ended(home)) == LEASES, seconds=90)
        ends = ended(home)
        assert set(ends) == set(holders)
        how = Counter((ids.index(holders[lease_id]), kind) for lease_id, kind in ends.items())
        # The one that died is fenced whatever happens; the other settles, unless its daemon was away for too long.
        assert how[1, "lease.fenced"] == LEASES // 2, how
        assert how[0, "lease.settled"] + how[0, "lease.fenced"] == LEASES // 2, how
        lost = [(time_ms, payload) for kind, time_ms, payload in events(home) if kind == "worker.orphaned"]
        with capsys.disabled():
            silent = max(time_ms - payload["heard_ms"] for time_ms, payload in lost) / 1_000
            print(f"\n{dict(how)}; fenced after {silent:.1f} s of silence, {HEARTBEAT_TIMEOUT} are allowed")
        assert held(home) == []
        workers[0].says("connected and attested", times=2)
        states = {one["worker_id"]: one["state"] for one in home.palyra("worker", "list", "--json").data["workers"]}
        assert states[ids[1]] == "orphaned"
        assert home.palyra("journal", "verify", "--json").status == 0
    finally:
        for worker in workers:
            worker.stop()
        daemon.stop()
