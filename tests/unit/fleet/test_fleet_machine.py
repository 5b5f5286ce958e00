"""The fleet under any order of events, restarts among them: what must hold, holds after every step.

The model keeps nothing but what the promises are about: which leases counted, which grants began one, which worker was
quarantined since when.
"""

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakes.fleet_peers import EGRESS, POLICY, FleetPeers, numbered
from fakes.journal_harness import JournalHarness, StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.fleet.agent.lease_machine import FINAL_ANSWERS
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import LeaseState
from palyra.fleet.domain.manager import WorkerFleetManager, due
from palyra.fleet.domain.worker import WorkerLifecycleState as State
from palyra.fleet.store.fleet_tables import SqliteFleet
from palyra.fleet.store.port import Beat
from palyra.fleet.store.schema import SCHEMA

WORKERS = [numbered(number) for number in (1, 2, 3)]
workers = st.sampled_from(WORKERS)
rarely = st.sampled_from([False] * 9 + [True])
LIES = ["", "", "", "", "left", "fence"]
DISCLAIMERS = ["", "", "", "", "boot", "nonce", "stale"]


class FleetMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.peers = FleetPeers()
        self.clock = StillClock()
        self.ledger: Any = self.make()
        self.session: dict[str, int] = {}
        self.boots: dict[str, int] = {}
        # Workers in quarantine; and since their release, those that have not attested themselves yet.
        self.distrusted: set[str] = set()
        self.unattested: set[str] = set()
        self.drained: set[str] = set()
        # The connection on which each last attested itself, and the challenge that its release made void.
        self.attested: dict[str, int] = {}
        self.void_nonce: dict[str, str] = {}
        self.leases: dict[str, str] = {}
        self.settled: dict[str, str] = {}
        self.void: set[str] = set()
        # Leases whose offer was lost on the way; those that their worker showed to have; and those that it disclaimed.
        self.undelivered: set[str] = set()
        self.shown: set[str] = set()
        self.disclaimed: set[str] = set()
        # Leases that are at their worker until it has told of their end, each with whether its workspace is there.
        self.at_worker: dict[str, bool] = {}
        self.grants: list[Any] = []
        self.used: dict[str, str] = {}
        self.fences: list[int] = []

    def make(self) -> Any:
        return MemoryFleet(self.clock, WorkerFleetManager(POLICY))

    def reload(self) -> None:
        self.ledger.restart()

    def teardown(self) -> None:
        self.runner.close()

    def do(self, command: commands.FleetCommand) -> Any:
        """The decision, with the refusal in it."""
        (decision,) = self.runner.run(self.ledger.decide_all([command]))
        return decision

    def known(self, worker_id: str) -> Any:
        return self.ledger.worker(worker_id) if worker_id in self.session else None

    def open_now(self) -> list[str]:
        return sorted(lease_id for lease_id in self.leases if self.ledger.lease(lease_id).is_open)

    def note_states(self) -> None:
        """What the step did to workers and leases, as the ledger tells."""
        for worker_id in self.session:
            worker = self.known(worker_id)
            if worker.state is State.QUARANTINED:
                self.distrusted.add(worker_id)
        for lease_id in self.leases:
            if self.ledger.lease(lease_id).state in (LeaseState.FENCED, LeaseState.EXPIRED):
                self.void.add(lease_id)

    @initialize()
    def begin(self) -> None:
        for worker_id in WORKERS:
            self.come_back(worker_id)

    @rule(worker_id=workers)
    def come_back(self, worker_id: str) -> None:
        """An honest worker after a cut: connects, attests itself, and settles what it still had."""
        self.connect(worker_id, crash=False)
        self.attest(worker_id, lying=False, stale=False)
        for lease_id, holder in sorted(self.leases.items()):
            if holder == worker_id and lease_id in self.known(worker_id).owes:
                if lease_id in self.undelivered:
                    self.disclaim(lease_id, "")
                    assert lease_id in self.disclaimed and worker_id not in self.distrusted
                else:
                    self.report(lease_id, worker_id, "")

    @rule(worker_id=workers, idempotent=st.booleans(), arrives=st.booleans())
    def work(self, worker_id: str, idempotent: bool, arrives: bool = True) -> None:
        self.grant()
        before = set(self.leases)
        self.lease(worker_id, 0, idempotent, changed=False)
        if not arrives:
            self.undelivered |= set(self.leases) - before
            for lease_id in self.undelivered:
                self.at_worker.pop(lease_id, None)

    @rule(which=st.integers(0, 5))
    def finish(self, which: int) -> None:
        held = [lease_id for lease_id in self.open_now() if lease_id not in self.undelivered]
        if held:
            lease_id = held[which % len(held)]
            self.report(lease_id, self.leases[lease_id], "")

    @rule(milliseconds=st.sampled_from([1_000, 10_000, 14_000, 35_000]), silent=st.none() | workers)
    def time_passes_with_heartbeats(self, milliseconds: int, silent: str | None) -> None:
        self.clean_up_what_is_void()
        for _ in range(milliseconds // 1_000):
            self.clock.now += 1_000
            beating = [one for one in self.session if one != silent]
            self.runner.run(self.ledger.beat([Beat(worker_id=one, session=self.session[one]) for one in beating]))

    @rule(worker_id=workers, crash=rarely)
    def connect(self, worker_id: str, crash: bool) -> None:
        self.boots[worker_id] = self.boots.get(worker_id, 0) + crash
        before = self.known(worker_id)
        named = self.at(worker_id)
        if crash:
            self.at_worker.update(dict.fromkeys(named, False))
        boot = f"boot-{self.boots[worker_id]}"
        decision = self.do(self.peers.open_session(worker_id, boot=boot, named=named))
        if decision.refusal is None:
            self.session[worker_id] = decision.worker.session
            if crash and before is not None and (before.open_leases or before.owes):
                assert decision.worker.state is State.QUARANTINED
        self.note_states()

    @rule(worker_id=workers, lying=rarely, stale=rarely)
    def attest(self, worker_id: str, lying: bool, stale: bool) -> None:
        """Rarely with a wrong digest, rarely on an older connection."""
        worker = self.known(worker_id)
        if worker is None or not worker.nonce:
            return
        changes = {} if not lying else {"build_digest_sha256": "00" * 32}
        session = worker.session - 1 if stale else worker.session
        decision = self.do(self.peers.present(worker, self.clock.now, session=session, **changes))
        if decision.refusal is None:
            assert not lying and not stale and worker_id not in self.distrusted
            assert worker.nonce != self.void_nonce.get(worker_id)
            self.unattested.discard(worker_id)
            self.attested[worker_id] = worker.session
        self.note_states()

    @rule(worker_id=workers)
    def challenge(self, worker_id: str) -> None:
        self.do(commands.Challenge(actor="palyrad", worker_id=worker_id, nonce=self.peers.nonce()))

    @rule(beating=st.sets(workers), contradicting=rarely)
    def heartbeat(self, beating: set[str], contradicting: bool) -> None:
        workspaces = 1 if contradicting else 0
        beats = [
            Beat(worker_id=one, session=self.session.get(one, 1), workspaces=workspaces) for one in sorted(beating)
        ]
        answer = self.runner.run(self.ledger.beat(beats))
        for beat in answer.suspect:
            self.do(
                commands.ReportWorkspaces(
                    actor="palyrad", worker_id=beat.worker_id, session=beat.session, count=beat.workspaces
                )
            )
            assert self.known(beat.worker_id).state is State.QUARANTINED
        self.note_states()

    def at(self, worker_id: str) -> list[str]:
        return [lease_id for lease_id in self.at_worker if self.leases[lease_id] == worker_id]

    def clean_up_what_is_void(self) -> None:
        """A worker that is connected has heard what is void, and is done with it before time passes."""
        for lease_id in self.at_worker:
            if not self.ledger.lease(lease_id).is_open and self.known(self.leases[lease_id]).connected:
                self.at_worker[lease_id] = False

    @rule(worker_id=workers)
    def count_workspaces(self, worker_id: str) -> None:
        """Whatever happened to its leases: that a worker counts what it has and says so never speaks against it."""
        if worker_id not in self.session:
            return
        count = sum(self.at_worker[lease_id] for lease_id in self.at(worker_id))
        beat = Beat(worker_id=worker_id, session=self.session[worker_id], workspaces=count)
        answer = self.runner.run(self.ledger.beat([beat]))
        assert not answer.suspect or self.known(worker_id).state is State.QUARANTINED
        self.do(
            commands.ReportWorkspaces(actor="palyrad", worker_id=worker_id, session=beat.session, count=beat.workspaces)
        )
        assert self.known(worker_id).state is not State.QUARANTINED or worker_id in self.distrusted

    @rule()
    def grant(self) -> None:
        grant = self.peers.grant(self.clock.now)
        assert self.do(self.peers.issue(grant)).refusal is None
        self.grants.append(grant)

    @precondition(lambda self: self.grants)
    @rule(worker_id=workers, which=st.integers(0, 30), idempotent=st.booleans(), changed=st.booleans())
    def lease(self, worker_id: str, which: int, idempotent: bool, changed: bool) -> None:
        grant = self.grants[-1 - which % len(self.grants)]
        changes: dict[str, Any] = {"idempotent": idempotent}
        if changed and which % 5 == 0:
            changes["argument_digest"] = "11" * 32
        command = self.peers.lease(worker_id, grant, **changes)
        decision = self.do(command)
        if decision.refusal is None:
            assert worker_id not in self.distrusted and worker_id not in self.unattested
            assert self.attested[worker_id] == self.session[worker_id] and not decision.worker.owes
            assert grant.grant_id not in self.used and "argument_digest" not in changes
            self.used[grant.grant_id] = command.lease_id
            self.leases[command.lease_id] = worker_id
            self.at_worker[command.lease_id] = True
            self.fences.append(decision.leases[0].lease.fence)

    @precondition(lambda self: self.leases)
    @rule(
        which=st.integers(0, 50),
        sender=st.sampled_from([None] * 6 + WORKERS),
        lie=st.sampled_from(LIES),
        stale=rarely,
    )
    def result(self, which: int, sender: str | None, lie: str, stale: bool) -> None:
        """Now, late, twice, or for another's lease."""
        lease_id = sorted(self.leases)[-1 - which % len(self.leases)]
        self.report(lease_id, sender or self.leases[lease_id], lie, stale=stale)

    def report(self, lease_id: str, sender: str, lie: str, *, stale: bool = False) -> None:
        lease = self.ledger.lease(lease_id)
        changes = {"": {}, "left": {"entries_left": 3}, "fence": {"fence": lease.fence + 1}}[lie]
        session = self.session.get(sender, 1) - stale
        if sender == lease.worker_id and lease_id in self.at_worker:
            self.at_worker[lease_id] = False
        decision = self.do(self.peers.settle(lease, self.clock.now, session, sender=sender, **changes))
        self.undelivered.discard(lease_id)
        if sender == lease.worker_id and (decision.refusal is None or decision.refusal.code in FINAL_ANSWERS):
            self.at_worker.pop(lease_id, None)
        if decision.refusal is None:
            assert lease_id not in self.disclaimed
            assert lease_id not in self.settled and lease_id not in self.void
            assert sender == lease.worker_id and lie != "fence" and not stale
            assert self.attested[sender] == session and self.clock.now <= lease.due_ms(POLICY)
            assert sender not in self.distrusted and sender not in self.unattested
            self.settled[lease_id] = decision.leases[0].lease.settlement_digest
        self.note_states()

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 50))
    def show(self, which: int) -> None:
        """Output of the lease, or a file for it: whenever, and whatever its worker said of it before."""
        lease_id = sorted(self.leases)[-1 - which % len(self.leases)]
        lease = self.ledger.lease(lease_id)
        self.undelivered.discard(lease_id)
        self.do(self.peers.shows(lease))
        if lease_id in self.disclaimed:
            assert self.known(lease.worker_id).state in (State.QUARANTINED, State.REMOVED)
        else:
            self.shown.add(lease_id)
        self.note_states()

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 50), lie=st.sampled_from(DISCLAIMERS))
    def disclaim_any(self, which: int, lie: str) -> None:
        """Asked or not, of a lease that it has or not."""
        self.disclaim(sorted(self.leases)[-1 - which % len(self.leases)], lie)

    def disclaim(self, lease_id: str, lie: str) -> None:
        lease = self.ledger.lease(lease_id)
        worker = self.known(lease.worker_id)
        changes = {"boot": {"boot_id": "boot-x"}, "nonce": {"nonce": "00" * 32}}.get(lie, {})
        session = self.session[lease.worker_id] - (lie == "stale")
        said = self.peers.disclaim(lease, worker, self.clock.now, session=session, **changes)
        owed = lease_id in worker.owes
        decision = self.do(said)
        if decision.refusal is None:
            assert owed and not lie and lease_id in self.void
            assert lease_id not in self.shown and lease_id not in self.disclaimed
            assert self.attested[lease.worker_id] == session
            assert lease.worker_id not in self.distrusted and lease.worker_id not in self.unattested
            assert decision.leases[0].lease.state is lease.state and lease_id not in decision.worker.owes
            self.disclaimed.add(lease_id)
            self.at_worker.pop(lease_id, None)
        elif lease_id in self.shown or lie:
            assert lease_id not in self.known(lease.worker_id).owes or decision.refusal.code in (
                "worker.stale_session",
                "worker.not_attested",
            )
        self.note_states()

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 50), cancel=st.booleans())
    def cancel_or_decline(self, which: int, cancel: bool) -> None:
        lease = self.ledger.lease(sorted(self.leases)[-1 - which % len(self.leases)])
        if cancel:
            self.do(commands.CancelLease(actor="palyrad", lease_id=lease.lease_id))
        else:
            decision = self.do(
                commands.DeclineLease(
                    actor="w",
                    worker_id=lease.worker_id,
                    lease_id=lease.lease_id,
                    session=self.session[lease.worker_id],
                    fence=lease.fence,
                )
            )
            if decision.refusal is None:
                self.at_worker.pop(lease.lease_id, None)

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 50))
    def retry(self, which: int) -> None:
        lease = self.ledger.lease(sorted(self.leases)[-1 - which % len(self.leases)])
        grant_id = self.peers.next_id()
        decision = self.do(
            commands.RetryLease(actor="palyrad", lease_id=lease.lease_id, grant_id=grant_id, valid_ms=60_000)
        )
        if decision.refusal is None:
            assert lease.lease_id not in self.settled and not lease.retried_as
            assert lease.idempotent or lease.state is LeaseState.DECLINED
            self.grants.append(decision.grant)

    @rule(worker_id=workers)
    def disconnect(self, worker_id: str) -> None:
        self.do(commands.EndSession(actor="w", worker_id=worker_id, session=self.session.get(worker_id, 1)))

    @rule(worker_id=workers, drain=rarely)
    def drain_or_resume(self, worker_id: str, drain: bool) -> None:
        worker = self.known(worker_id)
        drained = worker is not None and worker.state is State.DRAINING
        if not drained and not drain:
            return
        kind = commands.ResumeWorker if drained else commands.DrainWorker
        if self.do(kind(actor="operator", worker_id=worker_id)).refusal is None:
            self.drained ^= {worker_id}

    @rule(worker_id=workers, really=rarely, seen_by_proxy=st.booleans())
    def quarantine(self, worker_id: str, really: bool, seen_by_proxy: bool) -> None:
        if not really:
            return
        if seen_by_proxy:
            self.do(commands.ReportViolation(actor="e", worker_id=worker_id, egress_id=EGRESS, violation="relay"))
        else:
            self.do(commands.QuarantineWorker(actor="operator", worker_id=worker_id, reason="looks odd"))
        self.note_states()

    @precondition(lambda self: self.distrusted)
    @rule(worker_id=workers)
    def release(self, worker_id: str) -> None:
        before = self.known(worker_id)
        if self.do(commands.ReleaseWorker(actor="operator", worker_id=worker_id)).refusal is None:
            self.void_nonce[worker_id] = before.nonce
            assert worker_id in self.distrusted
            self.distrusted.discard(worker_id)
            self.unattested.add(worker_id)

    @rule(worker_id=workers, really=rarely)
    def remove(self, worker_id: str, really: bool) -> None:
        if really:
            self.do(commands.RemoveWorker(actor="operator", worker_id=worker_id))
            self.note_states()

    @rule(milliseconds=st.sampled_from([10, 1_000, 6_000, 16_000, 61_000, 700_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.clean_up_what_is_void()
        self.clock.now += milliseconds

    @rule()
    def reap(self) -> None:
        """One round leaves nothing behind that was due when it began."""
        now_ms = self.clock.now
        for command in due(self.ledger.candidates(now_ms), POLICY, now_ms, self.peers.nonce):
            self.do(command)
        for lease_id in self.open_now():
            lease = self.ledger.lease(lease_id)
            assert now_ms < lease.due_ms(POLICY)
            assert now_ms < self.known(lease.worker_id).heard_ms + POLICY.heartbeat_timeout_ms
        self.note_states()

    @rule()
    def restart(self) -> None:
        before = self.everything()
        self.reload()
        assert self.everything() == before

    def everything(self) -> Any:
        return self.ledger.workers(), self.ledger.leases(only_open=False), self.ledger.counts()

    @invariant()
    def promises_hold(self) -> None:
        for worker_id in self.session:
            worker = self.known(worker_id)
            held = {lease_id for lease_id in self.open_now() if self.leases[lease_id] == worker_id}
            assert set(worker.open_leases) == held and len(held) <= POLICY.max_leases_per_worker
            assert (worker.state is State.BUSY) == bool(held) or (worker.state is State.DRAINING)
            if worker.state is State.REMOVED:
                assert not held and not worker.connected
            if worker_id in self.distrusted:
                assert worker.state in (State.QUARANTINED, State.REMOVED) and not held
            if worker_id in self.drained:
                assert worker.state in (State.DRAINING, State.QUARANTINED, State.REMOVED)
            if worker_id in self.unattested and worker.state is not State.QUARANTINED:
                assert worker.attested is None
            assert not self.disclaimed & {*worker.owes, *worker.open_leases}
            if worker.state is State.AVAILABLE:
                assert worker.connected and worker.attested is not None
        for lease_id, digest in self.settled.items():
            lease = self.ledger.lease(lease_id)
            assert lease.state is LeaseState.SETTLED and lease.settlement_digest == digest
        for lease_id in self.void:
            assert self.ledger.lease(lease_id).state in (LeaseState.FENCED, LeaseState.EXPIRED)
        assert self.fences == sorted(set(self.fences))


class SqliteFleetMachine(FleetMachine):
    """The same over the real ledger, closed and opened again at every restart."""

    def make(self) -> Any:
        self.folder = tempfile.TemporaryDirectory()
        self.harness = JournalHarness(Path(self.folder.name))
        self.harness.clock = self.clock
        return self.open()

    def open(self) -> Any:
        self.store = self.harness.open(schema=SCHEMA)
        return SqliteFleet(self.store, WorkerFleetManager(POLICY))

    def reload(self) -> None:
        self.store.close()
        self.ledger = self.open()

    def teardown(self) -> None:
        super().teardown()
        self.store.close()
        self.folder.cleanup()


TestFleet = FleetMachine.TestCase
TestFleet.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSqliteFleet = SqliteFleetMachine.TestCase
TestSqliteFleet.settings = settings(
    max_examples=12, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.promise("P-worker-once")
@pytest.mark.parametrize("seed", range(4))
def test_a_long_life_keeps_the_promises(seed: int) -> None:
    """Generated examples are short; here the fleet lives long, mostly at work, and sees every kind of mishap."""
    chance = random.Random(seed)
    machine = FleetMachine()
    machine.begin()

    def some() -> str:
        return chance.choice(WORKERS)

    def rare() -> bool:
        return chance.random() < 0.1

    steps = {
        lambda: machine.work(some(), chance.random() < 0.5, chance.random() < 0.9): 20,
        lambda: machine.finish(chance.randrange(6)): 14,
        lambda: machine.come_back(some()): 6,
        lambda: machine.time_passes_with_heartbeats(
            chance.choice([1_000, 5_000, 20_000]), some() if chance.random() < 0.3 else None
        ): 8,
        lambda: machine.reap(): 8,
        lambda: machine.release(some()): 8,
        lambda: machine.restart(): 1,
        lambda: machine.disconnect(some()): 2,
        lambda: machine.connect(some(), rare()): 1,
        lambda: machine.attest(some(), rare(), rare()): 2,
        lambda: machine.heartbeat({some()}, rare()): 2,
        lambda: machine.count_workspaces(some()): 8,
        lambda: machine.quarantine(some(), chance.random() < 0.5, rare()): 2,
        lambda: machine.drain_or_resume(some(), rare()): 4,
        lambda: machine.time_passes(chance.choice([10, 6_000, 16_000])): 1,
        lambda: machine.leases and machine.result(chance.randrange(50), None, chance.choice(LIES), rare()): 2,
        lambda: machine.leases and machine.cancel_or_decline(chance.randrange(5), chance.random() < 0.5): 2,
        lambda: machine.leases and machine.disclaim_any(chance.randrange(50), chance.choice(DISCLAIMERS)): 1,
        lambda: machine.leases and machine.show(chance.randrange(3)): 2,
        lambda: machine.leases and machine.retry(chance.randrange(9)): 2,
        lambda: machine.grants and machine.lease(some(), chance.randrange(9), True, changed=True): 1,
    }
    for step in chance.choices(list(steps), weights=list(steps.values()), k=2_400):
        step()
        machine.promises_hold()
    machine.teardown()
    refused = {payload["code"] for kind, payload in machine.ledger.events() if kind == "lease.result_refused"}
    assert len(machine.settled) > 100 and len(machine.void) > 20, "this life would show nothing"
    assert len(machine.disclaimed) >= 3 and len(machine.shown) > 20
    assert {"lease.fenced", "lease.late", "lease.stale_fence"} <= refused
