"""The leases of a worker, as transcripts, and in any order."""

import itertools

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakes.lease_offers import OFFER
from palyra.fleet import limits
from palyra.fleet.agent.lease import LeaseNote, LeaseOffer, NoRoom, ToolNotOffered
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
    Restate,
    Stop,
    Tell,
)
from palyra.fleet.agent.messages import Owed

L = OFFER.lease_id


def other(number: int) -> LeaseOffer:
    return msgspec.structs.replace(OFFER, lease_id=f"{number:026d}")


def owed(number: int) -> Owed:
    return Owed(other(number).lease_id, 3, "0" * 64)


def test_every_stage_handles_or_refuses_every_event() -> None:
    for stage, happening in itertools.product(LeaseStage, LeaseStageEvent):
        book = LeaseMachine(1)
        book._stages[L] = stage
        if (stage, happening) in TRANSITIONS:
            book._step(L, happening)
            assert book.stages[L] is TRANSITIONS[stage, happening]
        else:
            with pytest.raises(NoSuchTransition):
                book._step(L, happening)


def test_a_lease_is_taken_ended_told_and_forgotten() -> None:
    book = LeaseMachine(2)
    assert book.accepted_attestation() == []
    assert book.offered(OFFER) == [Accept(OFFER)]
    assert (book.running, book.slots, book.open_ids) == (1, 2, (L,))
    assert book.offered(OFFER) == [], "it came twice"
    assert book.ended(L) == [Tell(L)] and book.running == 0
    assert book.answered(L, "") == [Forget(L)] and book.open_ids == ()
    assert book.offered(OFFER) == [], "what was settled is not run again"
    assert book.answered(L, "") == []


def test_no_more_than_its_slots_nothing_unsound_nothing_it_does_not_run_and_nothing_while_winding_down() -> None:
    def require(offer: LeaseOffer) -> None:
        if offer.tool == "x":
            raise ToolNotOffered("no")

    book = LeaseMachine(1, require=require)
    reasons: list[str] = []
    unsound, unknown = msgspec.structs.replace(other(8), nonce=""), msgspec.structs.replace(other(9), tool="x")
    for offer in (unsound, unknown, OFFER, other(2)):
        (command,) = book.offered(offer)
        if isinstance(command, Decline):
            reasons.append(command.refusal.code)
    assert reasons == ["worker_offer.malformed", "worker_offer.tool_not_offered", "worker_offer.no_slot"]
    book.wind_down()
    assert book.slots == 0
    (command,) = book.offered(other(3))
    assert isinstance(command, Decline) and command.refusal.code == "worker_offer.winding_down"


def test_what_ended_without_a_connection_is_told_with_the_next_attestation() -> None:
    book = LeaseMachine(2)
    book.accepted_attestation()
    book.offered(OFFER)
    book.disconnected()
    assert book.ended(L) == []
    assert book.accepted_attestation() == [Tell(L)]
    book.disconnected()
    assert book.accepted_attestation() == [Tell(L)], "nobody answered"


def test_answers_about_the_connection_are_waited_out() -> None:
    book = LeaseMachine(2)
    book.accepted_attestation()
    book.offered(OFFER)
    book.ended(L)
    for code in ("worker.not_attested", "worker.stale_session"):
        assert book.answered(L, code) == []
        assert book.accepted_attestation() == [Tell(L)]
    assert book.answered(L, "lease.fenced") == [Forget(L)]


def test_a_result_that_is_not_taken_is_restated_once() -> None:
    book = LeaseMachine(2)
    book.accepted_attestation()
    book.offered(OFFER)
    book.ended(L)
    assert book.answered(L, "lease.result_too_large", "m") == [Restate(L, "lease.result_too_large", "m"), Tell(L)]
    assert book.answered(L, "lease.result_too_large", "m") == [Forget(L)]


def test_a_lease_is_stopped_once_and_only_while_it_runs() -> None:
    book = LeaseMachine(3)
    book.offered(OFFER)
    assert book.stop(L, "why") == [Stop(L, "why")] and book.stop(L, "again") == []
    book.ended(L)
    assert book.stop(L, "late") == [] and book.stop("unknown", "x") == []
    book.offered(other(2))
    assert book.stop_all("the end") == [Stop(other(2).lease_id, "the end")]


def test_a_lease_that_could_not_be_noted_is_dropped() -> None:
    book = LeaseMachine(1)
    book.offered(OFFER)
    refusal = NoRoom("the disk is full")
    book.dropped(L, refusal)
    assert book.open_ids == ()
    assert book.offered(OFFER) == [Decline(L, OFFER.fence, refusal)], "the word may have been lost: it stays the same"


def test_a_lease_that_was_named_to_the_daemon_is_not_declined_any_more() -> None:
    book = LeaseMachine(2)
    book.offered(OFFER)
    assert book.may_decline(L) and book.name_open() == (L,) and not book.may_decline(L)
    book.offered(other(2))
    assert book.may_decline(other(2).lease_id)
    book.accepted_attestation()
    assert book.ended(L) == [Tell(L)] and book.answered(L, "") == [Forget(L)]
    assert book.name_open() == (other(2).lease_id,)


def test_a_lease_that_was_declined_is_not_begun_when_it_comes_again() -> None:
    """The daemon may have the first answer by now, and have given the call to another."""
    book = LeaseMachine(1)
    book.accepted_attestation()
    book.offered(OFFER)
    (declined,) = book.offered(other(2))
    book.ended(L)
    book.answered(L, "")
    assert book.offered(other(2)) == [declined]
    assert book.offered(other(3)) == [Accept(other(3))], "there was a slot"


def test_only_what_was_never_begun_is_disclaimed_and_it_is_not_begun_later() -> None:
    book = LeaseMachine(1)
    book.accepted_attestation()
    assert book.owed(owed(1)) == [Disclaim(owed(1))]
    assert book.owed(owed(1)) == [Disclaim(owed(1))], "the word may have been lost"
    (command,) = book.offered(other(1))
    assert isinstance(command, Decline) and command.refusal.code == "worker_offer.disclaimed"
    book.offered(other(2))
    (command,) = book.offered(other(3))
    assert isinstance(command, Decline) and book.owed(owed(3)) == [Disclaim(owed(3))], "declined, and so not begun"
    assert book.owed(owed(2)) == [], "it runs"
    book.stop(other(2).lease_id, "void")
    assert book.owed(owed(2)) == [], "it is being stopped"
    book.disconnected()
    book.ended(other(2).lease_id)
    assert book.owed(owed(2)) == [], "its end will be told"
    book.accepted_attestation()
    book.answered(other(2).lease_id, "lease.fenced")
    assert book.owed(owed(2)) == [], "its end was told"


def test_notes_of_an_earlier_life_are_told_first_and_take_slots() -> None:
    book = LeaseMachine(1, [LeaseNote.of(OFFER, 1)])
    (command,) = book.offered(other(2))
    assert isinstance(command, Decline)
    assert book.accepted_attestation() == [Tell(L)]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 2)
    book = LeaseMachine(1)
    book.accepted_attestation()
    for number in range(5):
        book.offered(other(number))
        book.ended(other(number).lease_id)
        book.answered(other(number).lease_id, "")
        book.owed(owed(number + 10))
    assert len(book._settled) == len(book._refused) == 2


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes in whatever order: each lease is begun at most once, and forgotten only after an answer."""

    @initialize()
    def start(self) -> None:
        self.book = LeaseMachine(2)
        self.begun: list[str] = []
        self.forgotten: list[str] = []
        self.told: set[str] = set()
        self.not_begun: set[str] = set()
        self.next = 0

    def _take(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Accept(offer):
                    self.begun.append(offer.lease_id)
                case Tell(lease_id):
                    self.told.add(lease_id)
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
        self._take(self.book.offered(other(self.next)))

    @precondition(lambda self: self.book.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        running = [i for i, s in self.book.stages.items() if s in (LeaseStage.RUNNING, LeaseStage.STOPPING)]
        self._take(self.book.ended(data.draw(st.sampled_from(sorted(running)))))

    @rule(number=st.integers(0, 5))
    def stop(self, number: int) -> None:
        self._take(self.book.stop(other(number).lease_id, "x"))

    @rule(number=st.integers(0, 8))
    def owed(self, number: int) -> None:
        self._take(self.book.owed(owed(number)))

    @rule()
    def attest(self) -> None:
        self._take(self.book.accepted_attestation())

    @rule()
    def disconnect(self) -> None:
        self.book.disconnected()

    @rule(
        number=st.integers(0, 5),
        code=st.sampled_from(("", "lease.fenced", "worker.not_attested", "lease.result_too_large", "what.ever")),
    )
    def answer(self, number: int, code: str) -> None:
        lease_id = other(number).lease_id
        before = self.book.stages.get(lease_id)
        self._take(self.book.answered(lease_id, code))
        if lease_id in self.forgotten and before is not None:
            assert before in (LeaseStage.ENDED, LeaseStage.TOLD)

    @rule()
    def wind_down(self) -> None:
        self.book.wind_down()

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "book"):
            return
        assert len(self.begun) == len(set(self.begun)) and len(self.forgotten) == len(set(self.forgotten))
        assert set(self.book.open_ids) == set(self.begun) - set(self.forgotten)
        assert len(self.book.open_ids) <= 2
        assert not self.not_begun & set(self.begun), "said not to be begun, and begun"
        if self.book.attested:
            assert LeaseStage.ENDED not in self.book.stages.values() or self.told


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
