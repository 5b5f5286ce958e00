"""The worker's own machine and the ledger's rules with a bad line between them: whatever is lost, late or said twice,
however the clock, the daemon, the worker's disk and a person get between, an honest worker is never taken for a liar.
"""

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import POLICY, WORKER, FleetPeers
from fakes.journal_harness import StillClock
from fakes.lease_offers import OFFER
from fakes.memory_fleet import MemoryFleet
from palyra.fleet.agent import lease_machine
from palyra.fleet.agent.lease import NoRoom, OwedLease
from palyra.fleet.agent.lease_machine import LeaseMachine, LeaseStage
from palyra.fleet.domain import commands
from palyra.fleet.domain.manager import WorkerFleetManager, due
from palyra.fleet.domain.worker import WorkerLifecycleState as State
from palyra.fleet.store.port import Beat

STEPS = 16_000
LIES = ("contradicted", "other_lease", "out_of_time", "wrong_worker", "stale_fence", "incomplete")


class Life:
    """``down`` and ``up`` are what is on its way on the present line; ``late`` is what was said on old ones."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.runner = asyncio.Runner()
        self.clock = StillClock()
        self.harness = FleetPeers()
        self.ledger = MemoryFleet(self.clock, WorkerFleetManager(POLICY))
        # The worker: its machine, the leases that are noted on its disk, and its workspaces.
        self.machine = LeaseMachine(2)
        self.leases: dict[str, Any] = {}
        self.noted: set[str] = set()
        self.workspaces: set[str] = set()
        self.is_up = False
        self.session = 0
        self.attested = False
        self.down: list[tuple[str, Any]] = []
        self.up: list[tuple[int, str, Any]] = []
        self.late: list[tuple[int, str, Any]] = []
        # The daemon: what the hello named, whether that was caught up with, and the calls that still wait.
        self.named: frozenset[str] = frozenset()
        self.caught_up = False
        self.flights: set[str] = set()
        self.seen: Counter[str] = Counter()

    def do(self, command: commands.FleetCommand) -> Any:
        (decision,) = self.runner.run(self.ledger.decide_all([command]))
        worker = decision.worker
        if self.is_up and worker is not None and (not worker.connected or worker.session != self.session):
            self.cut()
        for event in decision.events:
            if event.kind in ("worker.quarantined", "lease.disclaimed", "lease.settled", "lease.result_refused"):
                self.seen[f"{event.kind} {event.payload.get('code', event.payload.get('reason', ''))}"] += 1
            if event.kind == "worker.quarantined":
                assert not any(lie in str(event.payload["reason"]) for lie in LIES), (command, event.payload)
        return decision

    @property
    def record(self) -> Any:
        return self.ledger.worker(WORKER)

    # The line.

    def connect(self) -> None:
        if self.is_up:
            return
        self.named = frozenset(self.machine.name_open())
        decision = self.do(self.harness.open_session(WORKER, named=self.named, slots=2))
        worker = decision.worker
        if decision.refusal is not None or worker is None or not worker.connected:
            return
        self.is_up, self.session, self.caught_up = True, worker.session, False
        for lease_id in sorted(self.named & {*worker.open_leases, *worker.owes}):
            self.do(commands.NoteTaken(actor="w", worker_id=WORKER, lease_id=lease_id))
        self.down.append(("welcome", sorted(self.named - set(worker.open_leases))))
        if worker.state is not State.QUARANTINED and worker.nonce:
            self.down.append(("challenge", None))

    def cut(self) -> None:
        """Some of what was said arrives late, on a line that the daemon knows is old; the rest is lost."""
        arrived = self.chance.randrange(len(self.up) + 1)
        self.late, self.up, self.down = self.late + self.up[:arrived], [], []
        self.is_up = self.attested = False
        self.machine.on_disconnect()

    def hang_up(self) -> None:
        if self.is_up:
            session = self.session
            self.cut()
            if self.chance.random() < 0.7:
                self.do(commands.EndSession(actor="w", worker_id=WORKER, session=session))

    def say(self, kind: str, about: Any) -> None:
        if self.is_up:
            self.up.append((self.session, kind, about))

    # The worker.

    def receive(self) -> None:
        if not self.down:
            return
        kind, about = self.down.pop(0)
        match kind:
            case "welcome":
                for lease_id in about:
                    self.carry_out(self.machine.stop(lease_id, "void"))
                self.beat()
            case "challenge":
                self.say("attestation", self.record)
            case "attested":
                self.attested = True
                self.carry_out(self.machine.on_attested())
            case "offer":
                self.leases[about.lease_id] = about
                offer = msgspec.structs.replace(OFFER, lease_id=about.lease_id, fence=about.fence, nonce=about.nonce)
                self.carry_out(self.machine.on_offer(offer))
            case "cancel":
                self.carry_out(self.machine.stop(about, "cancelled"))
            case "owed":
                self.carry_out(self.machine.on_owed(OwedLease(about.lease_id, about.fence, about.nonce)), about)
            case "answer":
                self.carry_out(self.machine.on_answer(*about))

    def carry_out(self, these: Any, about: Any = None) -> None:
        for command in these:
            match command:
                case lease_machine.Decline(lease_id, _, _):
                    self.say("declined", lease_id)
                case lease_machine.Report(lease_id) if self.attested:
                    self.say("settlement", (lease_id, self.clock.now))
                case lease_machine.Disclaim() if self.attested:
                    self.say("disclaimer", (about, self.clock.now))
                case lease_machine.Forget(lease_id):
                    self.noted.discard(lease_id)

    def running(self) -> list[str]:
        return [one for one, stage in self.machine.stages.items() if stage in (LeaseStage.RUNNING, LeaseStage.STOPPING)]

    def note(self) -> None:
        """A lease is noted and gets its place; or its worker's disk is full."""
        fresh = [one for one in self.running() if one not in self.noted]
        if not fresh:
            return
        lease_id = self.chance.choice(fresh)
        if self.chance.random() < 0.7:
            self.noted.add(lease_id)
            self.workspaces.add(lease_id)
        elif self.machine.may_decline(lease_id):
            self.machine.drop(lease_id, NoRoom("the disk is full"))
            self.say("declined", lease_id)
        else:
            self.carry_out(self.machine.on_end(lease_id))

    def work(self) -> None:
        """Output of one that runs, or its end."""
        begun = [one for one in self.running() if one in self.noted]
        if not begun:
            return
        lease_id = self.chance.choice(begun)
        if self.chance.random() < 0.3 and self.attested:
            self.say("output", lease_id)
            return
        self.workspaces.discard(lease_id)
        self.carry_out(self.machine.on_end(lease_id))

    def beat(self) -> None:
        self.say("heartbeat", len(self.workspaces))

    # The daemon.

    def read(self) -> None:
        """From the present line, or something late from an old one."""
        if self.late and self.chance.random() < 0.5:
            session, kind, about = self.late.pop(0)
        elif self.up:
            session, kind, about = self.up.pop(0)
        else:
            return
        match kind:
            case "heartbeat":
                beat = Beat(worker_id=WORKER, session=session, workspaces=about)
                for each in self.runner.run(self.ledger.beat([beat])).suspect:
                    self.do(
                        commands.ReportWorkspaces(
                            actor="palyrad", worker_id=WORKER, session=session, count=each.workspaces
                        )
                    )
            case "attestation":
                decision = self.do(self.harness.present(self.record, self.clock.now, session=session))
                if decision.refusal is None:
                    self.attest_answered(decision.worker)
            case "settlement":
                lease_id, ended_ms = about
                said = self.harness.settle(self.leases[lease_id], ended_ms, session)
                self.answer(lease_id, session, self.do(said))
            case "disclaimer":
                lease, looked_ms = about
                said = self.harness.disclaim(lease, self.record, looked_ms, session=session)
                statement = msgspec.structs.replace(said.statement, session=session)  # type: ignore[type-var]
                self.answer(lease.lease_id, session, self.do(msgspec.structs.replace(said, statement=statement)))
            case "declined":
                lease = self.ledger.lease(about)
                self.do(
                    commands.DeclineLease(
                        actor="w", worker_id=WORKER, lease_id=about, session=session, fence=lease.fence
                    )
                )
            case "output":
                self.do(self.harness.shows(self.ledger.lease(about)))

    def attest_answered(self, worker: Any) -> None:
        self.down.append(("attested", None))
        if not self.caught_up:
            self.caught_up = True
            for lease in self.ledger.leases(WORKER):
                if lease.lease_id in self.named or lease.taken_ms:
                    continue
                if lease.lease_id in self.flights:
                    self.down.append(("offer", lease))
                else:
                    self.decline(lease)
        for lease_id in worker.owes:
            lease = self.ledger.lease(lease_id)
            if not lease.taken_ms:
                self.down.append(("owed", lease))

    def decline(self, lease: Any) -> None:
        never_got = {"lease_id": lease.lease_id, "session": self.session, "fence": lease.fence}
        self.do(commands.DeclineLease(actor="palyrad", worker_id=WORKER, **never_got))

    def answer(self, lease_id: str, session: int, decision: Any) -> None:
        if self.is_up and session == self.session:
            self.down.append(("answer", (lease_id, "" if decision.refusal is None else decision.refusal.code)))

    def lease(self) -> None:
        grant = self.harness.grant(self.clock.now)
        decision = self.do(msgspec.structs.replace(self.harness.lease(WORKER, grant), grant=grant))
        if decision.refusal is None:
            self.flights.add(decision.leases[0].lease.lease_id)
            if self.is_up:
                self.down.append(("offer", decision.leases[0].lease))

    def cancel(self) -> None:
        held = self.ledger.leases(WORKER)
        if held:
            lease = self.chance.choice(held)
            self.do(commands.CancelLease(actor="palyrad", lease_id=lease.lease_id))
            if self.is_up:
                self.down.append(("cancel", lease.lease_id))

    def reap(self) -> None:
        for command in due(self.ledger.candidates(self.clock.now), POLICY, self.clock.now, self.harness.nonce):
            decision = self.do(command)
            if isinstance(command, commands.Challenge) and self.is_up and decision.worker and decision.worker.nonce:
                self.down.append(("challenge", None))

    def restart(self) -> None:
        """The daemon's next life knows what is in the ledger, and of no call that waits."""
        self.flights.clear()
        if self.is_up:
            self.cut()
        self.late.clear()
        self.ledger.restart()

    def operate(self) -> None:
        if self.record.state is State.QUARANTINED:
            self.do(commands.ReleaseWorker(actor="operator", worker_id=WORKER))
        elif self.chance.random() < 0.15:
            self.do(commands.QuarantineWorker(actor="operator", worker_id=WORKER, reason="looks odd"))

    def time_passes(self) -> None:
        """Nothing that the worker has to do takes it as long as the grace: a void lease's place is gone by then."""
        passed = self.chance.choice([10, 500, 2_000, 16_000, 16_000])
        for lease_id in self.running() if passed > POLICY.settle_grace_ms else ():
            if self.machine.stages[lease_id] is LeaseStage.STOPPING:
                self.workspaces.discard(lease_id)
                self.noted.add(lease_id)
                self.carry_out(self.machine.on_end(lease_id))
        self.clock.now += passed


@pytest.mark.parametrize("seed", range(6))
def test_an_honest_worker_is_never_taken_for_a_liar(seed: int) -> None:
    life = Life(seed)
    life.connect()
    steps = {
        life.receive: 60,
        life.read: 60,
        life.lease: 12,
        life.note: 12,
        life.work: 10,
        life.beat: 8,
        life.connect: 8,
        life.reap: 5,
        life.operate: 3,
        life.hang_up: 3,
        life.time_passes: 4,
        life.cancel: 1,
        life.restart: 1,
    }
    try:
        for step in life.chance.choices(list(steps), weights=list(steps.values()), k=STEPS):
            step()
    finally:
        life.runner.close()
    assert life.seen["lease.settled "] > 20 and life.seen["lease.disclaimed "], life.seen
    assert life.seen["worker.quarantined looks odd"] and life.seen["lease.result_refused lease.fenced"], life.seen
