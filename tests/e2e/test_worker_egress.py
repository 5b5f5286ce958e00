"""A daemon, a worker and its egress proxy, each a process of its own, joined by codes: a call on the worker reaches
what was granted, and one that tries more ends the worker's work, over restarts, until a person says otherwise."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Answer, Place
from fakes.egress_fleet import ProxyProcess
from fakes.eventually import eventually_sync
from fakes.node_process import approve, code_arguments, make_code
from fakes.served_host import ServedHost, served_host
from fakes.worker_process import DAEMON_SETTINGS, join, worker_process, worker_state
from palyra.daemon.egressd import read_policy

HOST = "allowed.test"
EGRESSD = (sys.executable, "-m", "palyra.daemon.egressd")
POLICY = """
allowed_hosts = ["{host}"]
private_targets = ["{host}"]
static_hosts = {{ "{host}" = ["{address}"] }}
"""
SETTINGS = """
[egress]
allowed_hosts = ["{host}"]
[sandbox]
allowed_hosts = ["{host}"]
allow_interpreters = true
"""
# The name is put together by the program: one that stands in the arguments is refused before anything runs.
FETCH = """
import urllib.request
print(urllib.request.urlopen("http://" + ".".join({labels}) + "/repo.git/HEAD", timeout=20).read())
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHost]:
    with served_host(tmp_path_factory.mktemp("served"), HOST) as found:
        yield found


def join_proxy(daemon: Place, place: Place, home: Path) -> None:
    """By a code of its own kind, as a person would."""
    made = make_code(daemon, "pin", kind="egress")
    words = [*EGRESSD, "--state-dir", str(home), "join", *code_arguments(made)]
    with subprocess.Popen(words, env=place.environment, stdout=subprocess.PIPE, text=True) as joining:
        assert joining.stdout is not None
        digits = joining.stdout.readline().partition("shows the code ")[2][:6]
        approve(daemon, digits)
        assert joining.wait(60) == 0


def fetch(daemon: Place, host: str, seconds: str = "30") -> Answer:
    arguments = json.dumps({"command": "/usr/bin/python3", "args": ["-I", "-c", FETCH.format(labels=host.split("."))]})
    return daemon.palyra(
        "call", "process.run", "--tier", "worker", "--input", arguments, "--timeout", seconds, "--json"
    )


def events(daemon: Place, kind: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"file:{daemon.state}/palyra.db?mode=ro", uri=True)) as database, database:
        rows = database.execute("SELECT payload FROM events WHERE kind = ? ORDER BY seq", (kind,)).fetchall()
    return [json.loads(row[0]) for row in rows]


def test_what_a_worker_reaches_and_what_its_proxy_says_of_it(tmp_path: Path, host: ServedHost) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(host=HOST, address=host.address))
    pinned = f'require_egress_binding = true\negress_policy_digests = ["{read_policy(policy).digest()}"]'
    fleet = DAEMON_SETTINGS.replace("require_egress_binding = false", pinned)
    daemon = Place(tmp_path / "daemon", fleet + SETTINGS.format(host=HOST))
    machine = Place(tmp_path / "machine", SETTINGS.format(host=HOST))
    home, where = tmp_path / "proxy", tmp_path / "egress.sock"
    with daemon.daemon():
        join_proxy(daemon, machine, home)
        worker_id = join(daemon, machine)
        proxy = ProxyProcess(home, policy, where)
        try:
            with worker_process(machine, "--egress-socket", str(where)) as worker:
                worker.says("connected and attested")
                reached = fetch(daemon, HOST)
                assert reached.status == 0 and "refs/heads/main" in reached.data["result"]["stdout"], reached.stdout
                assert worker_state(daemon, worker_id)["state"] == "available"
                before = len(host.arrived())
                fetch(daemon, "evil.test")
                eventually_sync(lambda: worker_state(daemon, worker_id)["state"] == "quarantined", seconds=60)
                assert len(host.arrived()) == before
                (reported, *_) = events(daemon, "worker.violation_reported")
                assert reported["violation"].startswith("egress.host_not_allowed evil.test")
        finally:
            proxy.stop()
    # Restarts of all three change nothing.
    with daemon.daemon():
        proxy = ProxyProcess(home, policy, where)
        try:
            with worker_process(machine, "--egress-socket", str(where)) as worker:
                assert worker_state(daemon, worker_id)["state"] == "quarantined"
                assert fetch(daemon, HOST, "1").status != 0
                released = daemon.palyra("worker", "release", worker_id, "--json")
                assert released.status == 0, released.stdout + released.stderr
                eventually_sync(lambda: fetch(daemon, HOST).status == 0, seconds=60)
        finally:
            proxy.stop()


def test_a_worker_without_its_proxy_is_not_taken(tmp_path: Path) -> None:
    daemon = Place(tmp_path / "daemon", DAEMON_SETTINGS.replace("binding = false", "binding = true"))
    machine = Place(tmp_path / "machine")
    with daemon.daemon():
        worker_id = join(daemon, machine)
        with worker_process(machine):
            eventually_sync(lambda: events(daemon, "worker.attestation_refused"), seconds=60)
            assert worker_state(daemon, worker_id)["state"] == "quarantined"
            (refused, *_) = events(daemon, "worker.attestation_refused")
            assert refused["code"] == "egress_binding.missing"
