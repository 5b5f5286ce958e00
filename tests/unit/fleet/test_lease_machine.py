"""The leases of a worker, as transcripts, and in any order."""

import itertools

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakes.lease_offers import OFFER
from palyra.fleet import limits
from palyra.fleet.agent.lease import LeaseNote, LeaseOffer, NoRoom, OwedLease, ToolNotOffered
from palyra.fleet.agent.lease_machine import (
    TRANSITIONS,
    Accept,
    Command,
    Decline,
    Disclaim,
    Forget,
    LeaseMachine,
    LeaseStage,
    LeaseStageEvent,
    NoSuchTransition,
    Report,
    Restate,
    Stop,
)

L = OFFER.lease_id


def other(number: int) -> LeaseOffer:
    return msgspec.structs.replace(OFFER, lease_id=f"{number:026d}")


def owed(number: int) -> OwedLease:
    return OwedLease(other(number).lease_id, 3, "0" * 64)


def test_every_stage_handles_or_refuses_every_event() -> None:
    for stage, event in itertools.product(LeaseStage, LeaseStageEvent):
        machine = LeaseMachine(1)
        machine._stages[L] = stage
        if (stage, event) in TRANSITIONS:
            machine._step(L, event)
            assert machine.stages[L] is TRANSITIONS[stage, event]
        else:
            with pytest.raises(NoSuchTransition):
                machine._step(L, event)


def test_a_lease_is_taken_ended_told_and_forgotten() -> None:
    machine = LeaseMachine(2)
    assert machine.on_attested() == []
    assert machine.on_offer(OFFER) == [Accept(OFFER)]
    assert (machine.running, machine.slots, machine.open_ids) == (1, 2, (L,))
    assert machine.on_offer(OFFER) == [], "it came twice"
    assert machine.on_end(L) == [Report(L)] and machine.running == 0
    assert machine.on_answer(L, "") == [Forget(L)] and machine.open_ids == ()
    assert machine.on_offer(OFFER) == [], "what was settled is not run again"
    assert machine.on_answer(L, "") == []


def test_no_more_than_its_slots_nothing_unsound_nothing_it_does_not_run_and_nothing_while_winding_down() -> None:
    def require(offer: LeaseOffer) -> None:
        if offer.tool == "x":
            raise ToolNotOffered("no")

    machine = LeaseMachine(1, require=require)
    reasons: list[str] = []
    unsound, unknown = msgspec.structs.replace(other(8), nonce=""), msgspec.structs.replace(other(9), tool="x")
    for offer in (unsound, unknown, OFFER, other(2)):
        (command,) = machine.on_offer(offer)
        if isinstance(command, Decline):
            reasons.append(command.refusal.code)
    assert reasons == ["worker_offer.malformed", "worker_offer.tool_not_offered", "worker_offer.no_slot"]
    machine.wind_down()
    assert machine.slots == 0
    (command,) = machine.on_offer(other(3))
    assert isinstance(command, Decline) and command.refusal.code == "worker_offer.winding_down"


def test_what_ended_without_a_connection_is_told_with_the_next_attestation() -> None:
    machine = LeaseMachine(2)
    machine.on_attested()
    machine.on_offer(OFFER)
    machine.on_disconnect()
    assert machine.on_end(L) == []
    assert machine.on_attested() == [Report(L)]
    machine.on_disconnect()
    assert machine.on_attested() == [Report(L)], "nobody answered"


def test_answers_about_the_connection_are_waited_out() -> None:
    machine = LeaseMachine(2)
    machine.on_attested()
    machine.on_offer(OFFER)
    machine.on_end(L)
    for code in ("worker.not_attested", "worker.stale_session"):
        assert machine.on_answer(L, code) == []
        assert machine.on_attested() == [Report(L)]
    assert machine.on_answer(L, "lease.fenced") == [Forget(L)]


def test_a_result_that_is_not_taken_is_restated_once() -> None:
    machine = LeaseMachine(2)
    machine.on_attested()
    machine.on_offer(OFFER)
    machine.on_end(L)
    assert machine.on_answer(L, "lease.result_too_large", "m") == [Restate(L, "lease.result_too_large", "m"), Report(L)]
    assert machine.on_answer(L, "lease.result_too_large", "m") == [Forget(L)]


def test_a_lease_is_stopped_once_and_only_while_it_runs() -> None:
    machine = LeaseMachine(3)
    machine.on_offer(OFFER)
    assert machine.stop(L, "why") == [Stop(L, "why")] and machine.stop(L, "again") == []
    machine.on_end(L)
    assert machine.stop(L, "late") == [] and machine.stop("unknown", "x") == []
    machine.on_offer(other(2))
    assert machine.stop_all("the end") == [Stop(other(2).lease_id, "the end")]


def test_a_lease_that_could_not_be_noted_is_dropped() -> None:
    machine = LeaseMachine(1)
    machine.on_offer(OFFER)
    refusal = NoRoom("the disk is full")
    machine.drop(L, refusal)
    assert machine.open_ids == ()
    assert machine.on_offer(OFFER) == [Decline(L, OFFER.fence, refusal)], "the first may be lost"


def test_a_lease_that_was_named_to_the_daemon_is_not_declined_any_more() -> None:
    machine = LeaseMachine(2)
    machine.on_offer(OFFER)
    assert machine.may_decline(L) and machine.name_open() == (L,) and not machine.may_decline(L)
    machine.on_offer(other(2))
    assert machine.may_decline(other(2).lease_id)
    machine.on_attested()
    assert machine.on_end(L) == [Report(L)] and machine.on_answer(L, "") == [Forget(L)]
    assert machine.name_open() == (other(2).lease_id,)


def test_a_lease_that_was_declined_is_not_begun_when_it_comes_again() -> None:
    """The daemon may have the first answer by now, and have given the call to another."""
    machine = LeaseMachine(1)
    machine.on_attested()
    machine.on_offer(OFFER)
    (declined,) = machine.on_offer(other(2))
    machine.on_end(L)
    machine.on_answer(L, "")
    assert machine.on_offer(other(2)) == [declined]
    assert machine.on_offer(other(3)) == [Accept(other(3))], "there was a slot"


def test_only_what_was_never_begun_is_disclaimed_and_it_is_not_begun_later() -> None:
    machine = LeaseMachine(1)
    machine.on_attested()
    assert machine.on_owed(owed(1)) == [Disclaim(owed(1))]
    assert machine.on_owed(owed(1)) == [Disclaim(owed(1))], "the word may have been lost"
    (command,) = machine.on_offer(other(1))
    assert isinstance(command, Decline) and command.refusal.code == "worker_offer.disclaimed"
    machine.on_offer(other(2))
    (command,) = machine.on_offer(other(3))
    assert isinstance(command, Decline) and machine.on_owed(owed(3)) == [Disclaim(owed(3))], "never begun"
    assert machine.on_owed(owed(2)) == [], "it runs"
    machine.stop(other(2).lease_id, "void")
    assert machine.on_owed(owed(2)) == [], "it is being stopped"
    machine.on_disconnect()
    machine.on_end(other(2).lease_id)
    assert machine.on_owed(owed(2)) == [], "its end will be told"
    machine.on_attested()
    machine.on_answer(other(2).lease_id, "lease.fenced")
    assert machine.on_owed(owed(2)) == [], "its end was told"


def test_notes_of_an_earlier_life_are_told_first_and_take_slots() -> None:
    machine = LeaseMachine(1, [LeaseNote.of(OFFER, 1)])
    (command,) = machine.on_offer(other(2))
    assert isinstance(command, Decline)
    assert machine.on_attested() == [Report(L)]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 2)
    machine = LeaseMachine(1)
    machine.on_attested()
    for number in range(5):
        machine.on_offer(other(number))
        machine.on_end(other(number).lease_id)
        machine.on_answer(other(number).lease_id, "")
        machine.on_owed(owed(number + 10))
    assert len(machine._settled) == len(machine._refused) == 2


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes in whatever order: each lease is begun at most once, and forgotten only after an answer."""

    @initialize()
    def start(self) -> None:
        self.machine = LeaseMachine(2)
        self.begun: list[str] = []
        self.forgotten: list[str] = []
        self.reported: set[str] = set()
        self.not_begun: set[str] = set()
        self.next = 0

    def _take(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Accept(offer):
                    self.begun.append(offer.lease_id)
                case Report(lease_id):
                    self.reported.add(lease_id)
                case Decline(lease_id):
                    self.not_begun.add(lease_id)
                case Disclaim(asked):
                    self.not_begun.add(asked.lease_id)
                case Forget(lease_id):
                    self.forgotten.append(lease_id)

    @rule(again=st.booleans())
    def offer(self, again: bool) -> None:
        if not again:
            self.next += 1
        self._take(self.machine.on_offer(other(self.next)))

    @precondition(lambda self: self.machine.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        running = [i for i, s in self.machine.stages.items() if s in (LeaseStage.RUNNING, LeaseStage.STOPPING)]
        self._take(self.machine.on_end(data.draw(st.sampled_from(sorted(running)))))

    @rule(number=st.integers(0, 5))
    def stop(self, number: int) -> None:
        self._take(self.machine.stop(other(number).lease_id, "x"))

    @rule(number=st.integers(0, 8))
    def owed(self, number: int) -> None:
        self._take(self.machine.on_owed(owed(number)))

    @rule()
    def attest(self) -> None:
        self._take(self.machine.on_attested())

    @rule()
    def disconnect(self) -> None:
        self.machine.on_disconnect()

    @rule(
        number=st.integers(0, 5),
        code=st.sampled_from(("", "lease.fenced", "worker.not_attested", "lease.result_too_large", "what.ever")),
    )
    def answer(self, number: int, code: str) -> None:
        lease_id = other(number).lease_id
        before = self.machine.stages.get(lease_id)
        self._take(self.machine.on_answer(lease_id, code))
        if lease_id in self.forgotten and before is not None:
            assert before in (LeaseStage.ENDED, LeaseStage.REPORTED)

    @rule()
    def wind_down(self) -> None:
        self.machine.wind_down()

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "machine"):
            return
        assert len(self.begun) == len(set(self.begun)) and len(self.forgotten) == len(set(self.forgotten))
        assert set(self.machine.open_ids) == set(self.begun) - set(self.forgotten)
        assert len(self.machine.open_ids) <= 2
        assert not self.not_begun & set(self.begun), "said not to be begun, and begun"
        if self.machine.attested:
            assert LeaseStage.ENDED not in self.machine.stages.values() or self.reported


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
