"""What becomes of a request at the device, as transcripts."""

import itertools

import pytest

from fakes.playbook import Playbook, silence
from palyra.nodes import limits
from palyra.nodes.agent.link_state import HostMisused, step
from palyra.nodes.agent.messages import (
    AskPerson,
    Begin,
    CancelQuestion,
    Dispatch,
    ForgetNote,
    Note,
    NoteState,
    Offer,
    Outcome,
    Report,
    Say,
    SendAccepted,
    SendMediation,
    Stop,
    WriteNote,
)
from palyra.nodes.agent.request_state import LATE, TRANSITIONS, RequestMachine, WorkEvent, WorkState

ECHO = Offer(name="echo", description="", input_schema={}, idempotent=True)
PRESS = Offer(name="press", description="", input_schema={})
MEDIATED = Offer(name="door", description="", input_schema={}, local_mediation=True)
OFFERED = {offer.name: offer for offer in (ECHO, PRESS, MEDIATED)}
DONE = Outcome.succeeded(b"{}")


def asked(request_id: str = "R1", capability: str = "press", timeout_ms: int = 1_000) -> Dispatch:
    return Dispatch(
        request_id=request_id, capability=capability, input_json=b"{}", timeout_ms=timeout_ms, max_result_bytes=100
    )


def note(state: NoteState, outcome: Outcome | None = None, capability: str = "press") -> Note:
    return Note(request_id="R1", capability=capability, state=state, outcome=outcome)


def written(state: NoteState, outcome: Outcome | None = None, capability: str = "press") -> WriteNote:
    return WriteNote(note(state, outcome, capability))


def busy(machine: RequestMachine | None = None) -> Playbook:
    return (
        Playbook(machine or RequestMachine(OFFERED))
        >> (lambda machine: machine.on_dispatched(asked(), 0))
        << written(NoteState.BEGUN)
        << SendAccepted("R1")
        << Begin(asked(), 1_000)
    )


def test_work_is_noted_before_it_begins_and_before_it_is_reported_and_settled_once() -> None:
    (
        busy()
        >> (lambda machine: machine.on_ended("R1", DONE, 5))
        << written(NoteState.FINISHED, DONE)
        >> (lambda machine: machine.reports())
        << Report("R1", DONE)
        >> (lambda machine: machine.reports())
        >> (lambda machine: machine.on_settled("R1"))
        << written(NoteState.SETTLED)
        >> (lambda machine: machine.on_settled("R1"))
        >> silence
    )


@pytest.mark.parametrize("moment", ["running", "finished", "settled"])
def test_a_request_that_comes_again_is_not_done_again(moment: str) -> None:
    play = busy()
    machine: RequestMachine = play.machine
    if moment != "running":
        machine.on_ended("R1", DONE, 1)
    if moment == "settled":
        machine.reports()
        machine.on_settled("R1")
    said = machine.on_dispatched(asked(), 2)
    assert not [each for each in said if isinstance(each, Begin | WriteNote)]
    assert [type(each) for each in said] == [Say if moment == "settled" else SendAccepted]


def test_a_result_that_was_not_taken_over_is_reported_again() -> None:
    play = busy() >> (lambda machine: machine.on_ended("R1", DONE, 5)) << WriteNote
    for _ in range(2):
        play = (
            play
            >> (lambda machine: machine.reports())
            << Report("R1", DONE)
            >> (lambda machine: machine.on_unsent("R1"))
        )
    assert play.machine.open_ids == ("R1",)


def test_the_person_is_asked_first_and_a_no_is_final() -> None:
    machine = RequestMachine(OFFERED)
    play = (
        Playbook(machine)
        >> (lambda machine: machine.on_dispatched(asked(capability="door"), 0))
        << written(NoteState.BEGUN, capability="door")
        << SendAccepted("R1")
        << SendMediation("R1")
        << AskPerson(asked(capability="door"), 1_000)
        >> (lambda machine: machine.on_answered("R1", False, 10))
        << WriteNote
    )
    (report,) = machine.reports()
    assert isinstance(report, Report) and report.outcome.kind == "rejected"
    assert report.outcome.code == "nodes.declined_at_device"
    # A yes that comes afterwards is nobody's.
    assert play >> (lambda machine: machine.on_answered("R1", True, 11)) >> silence


def test_a_yes_leaves_only_the_time_that_is_left() -> None:
    machine = RequestMachine(OFFERED)
    machine.on_dispatched(asked(capability="door"), 0)
    assert machine.on_answered("R1", True, 400) == [Begin(asked(capability="door"), 600)]


@pytest.mark.parametrize(("capability", "stopped"), [("press", Stop("R1")), ("door", CancelQuestion("R1"))])
def test_time_that_is_over_stops_it_and_says_so(capability: str, stopped: object) -> None:
    machine = RequestMachine(OFFERED)
    machine.on_dispatched(asked(capability=capability), 0)
    assert machine.next_wake_ms == 1_000 and machine.tick(999) == []
    first, second = machine.tick(1_000)
    assert first == stopped and isinstance(second, WriteNote)
    assert second.note.outcome is not None and second.note.outcome.code == "nodes.device_timed_out"
    # What ends on its own after that changes nothing.
    assert machine.on_ended("R1", DONE, 1_001) == []


@pytest.mark.parametrize(("capability", "stopped"), [("press", Stop("R1")), ("door", CancelQuestion("R1"))])
def test_what_the_daemon_cancels_is_stopped_and_not_reported(capability: str, stopped: object) -> None:
    machine = RequestMachine(OFFERED)
    machine.on_dispatched(asked(capability=capability), 0)
    assert machine.on_cancelled("R1") == [stopped, written(NoteState.SETTLED, capability=capability)]
    assert machine.reports() == [] and machine.on_cancelled("R1") == [] and machine.on_abandoned(["R1", "R9"]) == []


def test_after_a_kill_unfinished_work_has_failed_and_finished_work_is_handed_in() -> None:
    interrupted = RequestMachine(OFFERED, [note(NoteState.BEGUN)])
    (said,) = interrupted.begin(0)
    assert isinstance(said, WriteNote) and said.note.outcome is not None
    assert said.note.outcome.code == "nodes.host_interrupted"
    assert interrupted.reports() == [Report("R1", said.note.outcome)]
    # Dispatched again by a daemon that lost its memory: still not done again.
    assert interrupted.on_dispatched(asked(), 1) == [SendAccepted("R1")]

    finished = RequestMachine(OFFERED, [note(NoteState.FINISHED, DONE)])
    assert finished.begin(0) == [] and finished.open_ids == ("R1",)
    assert finished.reports() == [Report("R1", DONE)]

    settled = RequestMachine(OFFERED, [note(NoteState.SETTLED)])
    assert settled.begin(0) == [] and settled.open_ids == ()
    assert isinstance(settled.on_dispatched(asked(), 1)[0], Say)


def test_after_a_kill_what_may_be_done_twice_is_done_again_when_it_is_sent_again() -> None:
    machine = RequestMachine(OFFERED, [note(NoteState.BEGUN, capability="echo")])
    assert machine.begin(0) == [ForgetNote("R1")] and machine.open_ids == ()
    assert machine.on_dispatched(asked(capability="echo"), 1)[-1] == Begin(asked(capability="echo"), 1_000)


@pytest.mark.promise("P-limits")
def test_what_is_not_offered_and_what_is_too_much_is_answered_not_begun() -> None:
    machine = RequestMachine(OFFERED)
    machine.on_dispatched(asked(capability="rm"), 0)
    (report,) = machine.reports()
    assert isinstance(report, Report) and report.outcome.code == "nodes.capability_not_offered"
    for number in range(limits.MAX_RUNNING):
        assert isinstance(machine.on_dispatched(asked(f"B{number}"), 0)[-1], Begin)
    machine.on_dispatched(asked("B-more"), 0)
    (report,) = machine.reports()
    assert isinstance(report, Report) and report.outcome.code == "nodes.device_busy"
    for number in range(limits.MAX_OPEN):
        machine.on_dispatched(asked(f"C{number}"), 0)
    assert len(machine.open_ids) == limits.MAX_OPEN
    assert isinstance(machine.on_dispatched(asked("C-more"), 0)[0], Say)


def test_the_longest_work_is_bounded_whatever_the_daemon_says() -> None:
    machine = RequestMachine(OFFERED)
    assert machine.on_dispatched(asked(timeout_ms=2**60), 0)[-1] == Begin(asked(timeout_ms=2**60), limits.MAX_WORK_MS)


def test_a_result_nobody_can_want_any_more_is_let_go() -> None:
    machine = busy().machine
    machine.on_ended("R1", DONE, 5)
    assert machine.tick(5 + limits.RESULT_KEPT_MS - 1) == []
    said, settled = machine.tick(5 + limits.RESULT_KEPT_MS)
    assert isinstance(said, Say) and settled == written(NoteState.SETTLED)


def test_a_report_under_way_is_awaited() -> None:
    machine = busy().machine
    machine.on_ended("R1", DONE, 5)
    machine.reports()
    assert machine.tick(5 + limits.RESULT_KEPT_MS) == [] and machine.open_ids == ("R1",)


@pytest.mark.promise("P-device-once")
def test_finished_ids_are_remembered_up_to_a_bound() -> None:
    machine = RequestMachine(OFFERED)
    for number in range(limits.MAX_REMEMBERED + 1):
        machine.on_dispatched(asked(f"R{number}"), 0)
        machine.on_cancelled(f"R{number}")
    assert isinstance(machine.on_dispatched(asked("R0"), 0)[0], WriteNote), "the oldest is forgotten"
    assert isinstance(machine.on_dispatched(asked("R2"), 0)[0], Say)


def test_every_state_takes_or_refuses_every_event() -> None:
    assert not LATE & set(TRANSITIONS)
    for pair in itertools.product(WorkState, WorkEvent):
        if pair not in TRANSITIONS:
            with pytest.raises(HostMisused):
                step(TRANSITIONS, *pair)
