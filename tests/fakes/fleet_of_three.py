"""Three workers in networks of their own and a daemon in a fourth: calls spread over them while one worker is drained,
one cut off and one killed. Every call ends once, and every result bears the word of the worker that ran it."""

import json
import sqlite3
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import fakes.traced_worker_main
from fakes.daemon import Place
from fakes.eventually import eventually_sync
from fakes.fleet_load import FleetLoad, PlannedCall, mixed
from fakes.star_of_networks import StarOfNetworks, star_of_networks
from fakes.two_networks import NEAR_ADDRESS
from fakes.worker_process import DAEMON_SETTINGS, WorkerProcess, join, worker_state
from palyra.pipeline.attest import verify_worker_attestation
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.signing.p256 import P256Verifier
from palyra.signing.tool_attestation import verify_evidence

SETTINGS = DAEMON_SETTINGS + f'[nodes]\nhost = "{NEAR_ADDRESS}"\nadvertise = ["{NEAR_ADDRESS}"]\n'
TRACED = (sys.executable, str(Path(fakes.traced_worker_main.__file__)))
DRAINED, CUT_OFF, KILLED = range(3)
# How a call may end that was on the worker which was lost.
LOST = {"lease.lost", "lease.not_taken", "fleet.no_worker"}


class Machine:
    """One worker in a network of its own, and the calls that it began to run."""

    def __init__(self, root: Path, networks: StarOfNetworks, number: int) -> None:
        self.place = Place(root / f"machine{number}")
        self.place.through = networks.far[number].through
        self.trace = root / f"trace{number}"
        self.worker_id = ""
        self.process: WorkerProcess | None = None

    def start(self) -> None:
        self.process = WorkerProcess(self.place, str(self.trace), "run", "--slots", "4", program=TRACED)
        self.process.says("connected and attested")

    def comes_to_be(self, home: Place, *states: str) -> None:
        eventually_sync(lambda: worker_state(home, self.worker_id)["state"] in states, seconds=60)

    def ran(self) -> list[str]:
        """The id of each call, as often as it was begun here."""
        return [line.split()[0] for line in self.trace.read_text().splitlines()]


def events(home: Place, *kinds: str) -> list[tuple[str, str, dict[str, Any]]]:
    marks = ", ".join("?" * len(kinds))
    with closing(sqlite3.connect(f"file:{home.state}/palyra.db?mode=ro", uri=True)) as database, database:
        rows = database.execute(f"SELECT kind, call, payload FROM events WHERE kind IN ({marks}) ORDER BY seq", kinds)
        return [(kind, call, json.loads(payload)) for kind, call, payload in rows]


def live_through(root: Path, calls: int) -> Counter[str]:
    """So many calls while it all happens; how many ended how. Asserts what holds of each of them."""
    planned = mixed(calls)
    with ExitStack() as stack:
        networks = stack.enter_context(star_of_networks(3))
        home = Place(root / "home", SETTINGS)
        home.through = networks.near.through
        daemon = stack.enter_context(home.daemon())
        machines = [Machine(root, networks, number) for number in range(3)]
        stack.callback(_stop, machines)
        (home.state / "workspace" / "made").mkdir()
        for machine in machines:
            machine.worker_id = join(home, machine.place)
        with ThreadPoolExecutor(3) as starting:
            list(starting.map(Machine.start, machines))
        load = FleetLoad(daemon, networks.near, planned)
        load.reaches(0.2)
        assert home.palyra("worker", "drain", machines[DRAINED].worker_id, "--json").status == 0
        load.reaches(0.4)
        assert home.palyra("worker", "resume", machines[DRAINED].worker_id, "--json").status == 0
        networks.cut(CUT_OFF)
        eventually_sync(lambda: events(home, "worker.orphaned", "worker.offline"), seconds=60)
        networks.mend(CUT_OFF)
        load.reaches(0.6)
        assert machines[KILLED].process is not None
        machines[KILLED].process.kill()
        documents = load.wait()
        # Two are back without help; the third is known to be gone.
        for machine in (machines[CUT_OFF], machines[DRAINED]):
            machine.comes_to_be(home, "available")
        machines[KILLED].comes_to_be(home, "orphaned", "offline")
        verified = home.palyra("journal", "verify", "--json")
        assert verified.status == 0, verified.stdout
    _every_result_is_attested(home, machines, documents)
    _nothing_ran_twice_that_must_not(machines, planned, documents)
    granted = Counter(payload["worker_id"] for _, _, payload in events(home, "lease.granted"))
    assert all(granted[machine.worker_id] > calls // 20 for machine in machines), granted
    return _every_call_ended_once(home, planned, documents)


def _stop(machines: list[Machine]) -> None:
    for each in machines:
        if each.process is not None:
            each.process.stop()


def _every_result_is_attested(home: Place, machines: list[Machine], documents: dict[int, dict[str, Any]]) -> None:
    """With nothing but the daemon's public key, as an auditor elsewhere would."""
    keys = [Ed25519Verifier.from_pem_file(home.state / "signing.pub")]
    key_of = {payload["worker_id"]: payload["key_id"] for _, _, payload in events(home, "worker.attested")}
    ran = {machine.worker_id: set(machine.ran()) for machine in machines}
    for document in documents.values():
        if document["status"] != "succeeded":
            continue
        raw = json.dumps({"ok": True, "data": document}).encode()
        said = verify_worker_attestation(raw, verify_evidence(raw, keys).attestation, P256Verifier.from_der)
        assert said is not None and said.call_id == document["call_id"]
        lease = document["receipt"][0]
        assert lease["key_id"] == key_of[lease["worker_id"]]
        assert document["call_id"] in ran[lease["worker_id"]], "another worker than the one that ran it signed"


def _every_call_ended_once(
    home: Place, planned: list[PlannedCall], documents: dict[int, dict[str, Any]]
) -> Counter[str]:
    assert len(documents) == len(planned) and len({one["call_id"] for one in documents.values()}) == len(planned)
    how = Counter("succeeded" if one["status"] == "succeeded" else one["error"]["code"] for one in documents.values())
    assert set(how) <= LOST | {"succeeded"}, how
    assert how["succeeded"] > 0.8 * len(planned), how
    finished = Counter(call for _, call, _ in events(home, "call.finished"))
    assert finished == Counter({one["call_id"]: 1 for one in documents.values()})
    for one in planned:
        if one.tool == "fs.write" and documents[one.number]["status"] == "succeeded":
            assert (home.state / "workspace" / one.arguments["path"]).read_text() == one.arguments["content"]
    leases = {payload["lease_id"] for _, _, payload in events(home, "lease.granted")}
    ends = events(home, "lease.settled", "lease.fenced", "lease.declined", "lease.expired")
    assert Counter(payload["lease_id"] for _, _, payload in ends) == Counter(leases)
    return how


def _nothing_ran_twice_that_must_not(
    machines: list[Machine], planned: list[PlannedCall], documents: dict[int, dict[str, Any]]
) -> None:
    begun = Counter(call for machine in machines for call in machine.ran())
    for one in planned:
        document = documents[one.number]
        times = begun[document["call_id"]]
        if document["status"] == "succeeded":
            assert times >= 1
        if not one.idempotent:
            assert times <= 1, one
