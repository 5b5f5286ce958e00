"""Lives of a device, as transcripts: the connection and the work together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.devicelink.agent.device_folder import HeldCertificate
from palyra.nodes.agent.messages import (
    Begin,
    Command,
    Dispatch,
    End,
    LossKind,
    Note,
    NoteState,
    Now,
    Offer,
    OpenLink,
    Outcome,
    Report,
    Say,
    SendAccepted,
    SendLeaving,
    ShowState,
    Stop,
    Welcome,
    WriteNote,
)
from palyra.nodes.agent.request_state import HostMachine

HOUR = 3_600_000
CERTIFICATE = HeldCertificate(generation=1, renew_at_ms=16 * HOUR, not_after_ms=24 * HOUR)
PRESS = Offer(name="press", description="", input_schema={})
WELCOME = Welcome(heartbeat_interval_ms=1_000, max_result_bytes=1_000)
DONE = Outcome.succeeded(b"{}")


def at(ms: int) -> Now:
    return Now(wall_ms=ms, mono_ms=ms)


def asked(request_id: str = "R1") -> Dispatch:
    return Dispatch(request_id=request_id, capability="press", input_json=b"{}", timeout_ms=60_000, max_result_bytes=9)


def online(notes: tuple[Note, ...] = ()) -> HostMachine:
    machine = HostMachine(CERTIFICATE, {"press": PRESS}, notes, draw=lambda: 1.0)
    assert OpenLink(1, tuple(note.request_id for note in notes)) in machine.begin(at(0))
    machine.on_opened(1, WELCOME, at(0))
    return machine


def kinds(said: list[Command]) -> list[type]:
    return [type(each) for each in said]


def test_work_that_outlives_its_connection_is_handed_in_on_the_next() -> None:
    machine = online()
    assert kinds(machine.on_dispatched(1, asked(), at(1))) == [WriteNote, SendAccepted, Begin]
    machine.on_lost(1, LossKind.UNREACHABLE, "cut", at(2))
    assert kinds(machine.on_worked("R1", DONE, at(3))) == [WriteNote], "nothing is sent without a link"
    wake = machine.next_wake_ms(at(3))
    assert wake is not None and OpenLink(2, ("R1",)) in machine.tick(at(wake))
    assert machine.on_opened(2, WELCOME, at(wake))[-1] == Report("R1", DONE)
    assert kinds(machine.on_reported("R1", at(wake))) == [WriteNote]


def test_what_the_daemon_no_longer_waits_for_is_stopped_at_registration() -> None:
    machine = online()
    machine.on_dispatched(1, asked(), at(1))
    machine.on_lost(1, LossKind.UNREACHABLE, "cut", at(2))
    machine.tick(at(machine.next_wake_ms(at(2)) or 0))
    welcome = Welcome(heartbeat_interval_ms=1_000, max_result_bytes=9, abandoned=("R1",), withheld=("press",))
    said = machine.on_opened(2, welcome, at(5_000))
    assert Stop("R1") in said and not [each for each in said if isinstance(each, Report)]
    assert any("withheld" in getattr(each, "text", "") for each in said)


def test_a_result_that_could_not_be_sent_goes_with_the_next_heartbeat_and_a_refused_one_never_again() -> None:
    machine = online()
    machine.on_dispatched(1, asked(), at(1))
    assert machine.on_worked("R1", DONE, at(2))[-1] == Report("R1", DONE)
    machine.on_report_unsent("R1", at(3))
    machine.on_acknowledged(1, at(1_000))
    assert machine.tick(at(1_000))[-1] == Report("R1", DONE)
    assert WriteNote in kinds(machine.on_report_refused("R1", "late", at(1_001)))
    machine.on_acknowledged(1, at(2_000))
    assert Report not in kinds(machine.tick(at(2_000)))


def test_a_dispatch_on_a_link_that_is_being_replaced_counts() -> None:
    machine = online()
    machine.on_authorities_changed(1, True, at(1))
    newer = HeldCertificate(generation=2, renew_at_ms=32 * HOUR, not_after_ms=40 * HOUR)
    assert machine.on_renewed(newer, at(2)) == [OpenLink(2, ())]
    machine.on_opened(2, WELCOME, at(3))
    assert Begin in kinds(machine.on_dispatched(1, asked(), at(4))) and machine.link == 2


def test_a_goodbye_is_said_and_the_next_try_shows_what_it_meant() -> None:
    machine = online()
    assert [type(each) for each in machine.on_dismissed("nodes.stopping", at(1))] == [Say]
    machine.on_lost(1, LossKind.UNREACHABLE, "ended", at(1))
    assert not machine.ended and machine.next_wake_ms(at(1)) is not None


def test_an_ended_host_takes_nothing_on() -> None:
    machine = online()
    machine.stop("")
    assert machine.ended and machine.next_wake_ms(at(2)) is None
    assert machine.on_dispatched(1, asked(), at(2)) == []
    assert machine.tick(at(10**9)) == [] and machine.stop("") == []


def test_stopping_says_so_and_leaves_notes_for_the_next_life() -> None:
    machine = online()
    machine.on_dispatched(1, asked(), at(1))
    said = machine.stop("asked to")
    assert said[0] == SendLeaving(1, "asked to") and said[-2:] == [ShowState("stopped"), End("", "asked to")]
    assert not [each for each in said if isinstance(each, WriteNote)], "the note still says begun"
    again = online((Note(request_id="R1", capability="press", state=NoteState.BEGUN),))
    again.on_acknowledged(1, at(1_000))
    assert Report not in kinds(again.tick(at(1_000))), "it went out with the registration already"


class World:
    """Draws what happens next, and checks what must hold whatever happens: every kill leaves notes to go on from."""

    def __init__(self) -> None:
        self.notes: dict[str, Note] = {}
        self.begun: dict[str, int] = {}
        self.under_way: set[str] = set()
        self.links = 0
        self.now = 0
        self.machine = self._life()

    def _life(self) -> HostMachine:
        machine = HostMachine(CERTIFICATE, {"press": PRESS}, tuple(self.notes.values()), draw=lambda: 0.5)
        self.links = 0
        self.under_way = set()
        self.follow(machine.begin(at(self.now)))
        return machine

    def follow(self, said: list[Command]) -> None:
        for each in said:
            match each:
                case WriteNote(note):
                    self.notes[note.request_id] = note
                case Begin(dispatch):
                    assert self.notes[dispatch.request_id].state is NoteState.BEGUN, "noted before it begins"
                    self.begun[dispatch.request_id] = self.begun.get(dispatch.request_id, 0) + 1
                case Report(request_id, outcome):
                    assert self.notes[request_id].outcome == outcome, "noted before it is reported"
                    self.under_way.add(request_id)
                case OpenLink(link):
                    self.links = link

    def happen(self, what: int, which: int) -> None:
        self.now += 700
        request_id = f"R{which}"
        machine, now = self.machine, at(self.now)
        match what:
            case 0:
                self.machine = self._life()
            case 1:
                self.follow(machine.on_opened(self.links, WELCOME, now))
            case 2:
                self.follow(machine.on_lost(self.links, LossKind.UNREACHABLE, "cut", now))
            case 3:
                self.follow(machine.on_dispatched(self.links, asked(request_id), now))
            case 4 if request_id in self.begun:
                self.follow(machine.on_worked(request_id, DONE, now))
            case 5 if request_id in self.under_way:
                self.under_way.remove(request_id)
                self.follow(machine.on_reported(request_id, now))
            case 6 if request_id in self.under_way:
                self.under_way.remove(request_id)
                self.follow(machine.on_report_unsent(request_id, now))
            case 7:
                self.follow(machine.on_cancelled(self.links, request_id, now))
            case _:
                self.follow(machine.tick(now))


@pytest.mark.promise("P-device-once")
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), max_size=60))
def test_no_work_is_ever_begun_twice_whatever_happens_in_whatever_order(events: list[tuple[int, int]]) -> None:
    world = World()
    for what, which in events:
        world.happen(what, which)
    assert all(times == 1 for times in world.begun.values())
