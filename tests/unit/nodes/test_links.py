"""The connection of a device, as transcripts."""

import itertools

import pytest

from fakes.playbook import Playbook, silence
from palyra.devicelink.agent.device_folder import HeldCertificate
from palyra.devicelink.limits import FIRST_DELAY_MS, LONGEST_DELAY_MS
from palyra.nodes import limits
from palyra.nodes.agent.link_state import TRANSITIONS, HostMisused, LinkEvent, LinkMachine, LinkState, step
from palyra.nodes.agent.messages import (
    CloseLink,
    Command,
    End,
    LossKind,
    Now,
    OpenLink,
    RequestRenewal,
    RetireLink,
    Say,
    SendHeartbeat,
    ShowState,
    Welcome,
)

HOUR = 3_600_000
BEAT = 1_000
FIRST = HeldCertificate(generation=1, renew_at_ms=16 * HOUR, not_after_ms=24 * HOUR)
SECOND = HeldCertificate(generation=2, renew_at_ms=32 * HOUR, not_after_ms=40 * HOUR)
WELCOME = Welcome(heartbeat_interval_ms=BEAT, max_result_bytes=1_000)


def at(ms: int) -> Now:
    """Both clocks began together."""
    return Now(wall_ms=ms, mono_ms=ms)


def tick(machine: LinkMachine, ms: int) -> list[Command]:
    return machine.tick(at(ms), 0, ())


def connected() -> LinkMachine:
    machine = LinkMachine(FIRST, lambda: 1.0)
    (
        Playbook(machine)
        >> (lambda machine: tick(machine, 0))
        << OpenLink(1)
        >> (lambda machine: machine.on_opened(1, WELCOME, at(0)))
        << ShowState("online")
        << Say("connected")
        >> silence
    )
    return machine


def at_renewal() -> LinkMachine:
    machine = connected()
    machine.note_message(1, at(FIRST.renew_at_ms))
    assert tick(machine, FIRST.renew_at_ms) == [SendHeartbeat(1, 0), RequestRenewal(1)]
    return machine


def switching() -> LinkMachine:
    machine = at_renewal()
    assert machine.on_renewed(SECOND, ("R1",)) == [OpenLink(2, ("R1",))]
    return machine


def test_a_lost_connection_is_tried_again_later_and_later_until_it_stands() -> None:
    machine = connected()
    assert machine.on_lost(1, LossKind.UNREACHABLE, "cut", at(0))[0] == ShowState("offline")
    assert not machine.online
    now, waits = 0, []
    for number in range(2, 12):
        wake = machine.next_wake_ms(at(now))
        assert wake is not None and tick(machine, wake - 1) == []
        assert tick(machine, wake) == [OpenLink(number)]
        waits.append(wake - now)
        now = wake
        machine.on_lost(number, LossKind.UNREACHABLE, "refused", at(now))
    assert waits == sorted(waits) and waits[-1] == LONGEST_DELAY_MS
    wake = machine.next_wake_ms(at(now))
    assert wake is not None
    tick(machine, wake)
    machine.on_opened(12, WELCOME, at(wake))
    assert machine.current == 12
    machine.on_lost(12, LossKind.UNREACHABLE, "cut", at(wake))
    assert machine.next_wake_ms(at(wake)) == wake + FIRST_DELAY_MS, "it begins anew"


@pytest.mark.promise("P-device-recovers")
def test_heartbeats_go_out_and_silence_is_a_lost_connection() -> None:
    machine = connected()
    assert tick(machine, BEAT - 1) == [] and tick(machine, BEAT) == [SendHeartbeat(1, 0)]
    machine.note_message(1, at(BEAT))
    for beat in range(2, 2 + limits.SILENT_INTERVALS - 1):
        assert tick(machine, beat * BEAT) == [SendHeartbeat(1, 0)]
    close, shown, *_ = tick(machine, BEAT + limits.SILENT_INTERVALS * BEAT)
    assert close == CloseLink(1) and shown == ShowState("offline")


def test_an_interval_of_nothing_does_not_wear_the_device_out() -> None:
    machine = LinkMachine(FIRST, lambda: 1.0)
    tick(machine, 0)
    machine.on_opened(1, Welcome(heartbeat_interval_ms=0, max_result_bytes=1), at(0))
    assert machine.next_wake_ms(at(0)) == limits.SHORTEST_HEARTBEAT_MS


def test_a_renewal_makes_the_new_link_before_it_lets_go_of_the_old() -> None:
    machine = switching()
    assert machine.current == 1, "everything still goes over the old link"
    assert machine.on_opened(2, WELCOME, at(FIRST.renew_at_ms)) == [RetireLink(1), Say("the new certificate is in use")]
    assert machine.current == 2 and machine.online
    # The old link's end is no loss.
    assert machine.on_lost(1, LossKind.UNREACHABLE, "retired", at(FIRST.renew_at_ms)) == []
    assert machine.state is LinkState.ONLINE


def test_a_new_link_that_fails_leaves_the_old_one_and_is_tried_again() -> None:
    machine = switching()
    now = FIRST.renew_at_ms
    (said,) = machine.on_lost(2, LossKind.UNREACHABLE, "no", at(now))
    assert isinstance(said, Say) and machine.current == 1
    assert tick(machine, now + FIRST_DELAY_MS - 1) == []
    assert tick(machine, now + FIRST_DELAY_MS) == [OpenLink(3)], "not another renewal"


def test_the_old_link_lost_while_the_new_one_opens_is_one_short_gap() -> None:
    machine = switching()
    now = at(FIRST.renew_at_ms)
    assert machine.on_lost(1, LossKind.UNREACHABLE, "cut", now) == [ShowState("offline")]
    assert machine.on_opened(2, WELCOME, now)[0] == ShowState("online")


def test_a_failed_renewal_is_tried_again_and_the_link_stays() -> None:
    machine = at_renewal()
    now = FIRST.renew_at_ms
    machine.on_renewal_failed("later", at(now))
    assert machine.current == 1
    assert tick(machine, now + FIRST_DELAY_MS) == [RequestRenewal(1)]


def test_a_renewal_whose_link_broke_is_asked_for_again_on_the_next() -> None:
    machine = at_renewal()
    now = FIRST.renew_at_ms
    machine.on_lost(1, LossKind.UNREACHABLE, "cut", at(now))
    machine.on_renewal_failed("cut", at(now))
    wake = machine.next_wake_ms(at(now))
    assert wake is not None and tick(machine, wake) == [OpenLink(2)]
    machine.on_opened(2, WELCOME, at(wake))
    due = machine.next_wake_ms(at(wake))
    assert due is not None and RequestRenewal(2) in tick(machine, due)


def test_a_renewal_that_outran_the_loss_of_its_link_is_used_by_the_next() -> None:
    machine = at_renewal()
    now = FIRST.renew_at_ms
    machine.on_lost(1, LossKind.UNREACHABLE, "cut", at(now))
    assert machine.on_renewed(SECOND, ()) == []
    tick(machine, now + FIRST_DELAY_MS)
    machine.on_opened(2, WELCOME, at(now + FIRST_DELAY_MS))
    assert machine.state is LinkState.ONLINE
    assert not [each for each in tick(machine, now + BEAT) if not isinstance(each, SendHeartbeat)]


def test_the_same_certificate_again_is_no_renewal() -> None:
    machine = at_renewal()
    assert machine.on_renewed(FIRST, ()) == [] and machine.state is LinkState.ONLINE


def test_news_of_authorities_renew_at_once() -> None:
    machine = connected()
    machine.renew_now()
    assert tick(machine, 1) == [RequestRenewal(1)]


@pytest.mark.promise("P-device-recovers")
def test_a_clock_that_is_set_back_does_not_put_the_renewal_off() -> None:
    """By the device's own clock there are hours left; by the daemon's there are not."""
    machine = connected()
    machine.next_wake_ms(at(BEAT))
    set_back = Now(wall_ms=FIRST.renew_at_ms - 12 * HOUR, mono_ms=FIRST.renew_at_ms)
    machine.note_message(1, set_back)
    assert RequestRenewal(1) in machine.tick(set_back, 0, ())


def test_an_ended_certificate_ends_the_host() -> None:
    machine = connected()
    machine.on_lost(1, LossKind.UNREACHABLE, "cut", at(0))
    said = tick(machine, FIRST.not_after_ms)
    assert isinstance(said[-1], End) and said[-1].code == "nodes.certificate_expired"
    assert machine.next_wake_ms(at(0)) is None


@pytest.mark.promise("P-limits")
def test_a_daemon_that_says_no_again_and_again_is_believed() -> None:
    machine = LinkMachine(FIRST, lambda: 0.0)
    said: list[Command] = []
    for number in range(1, limits.MAX_REFUSALS + 1):
        assert machine.state is LinkState.OFFLINE
        tick(machine, machine.next_wake_ms(at(0)) or 0)
        said = machine.on_lost(number, LossKind.REFUSED, "unauthenticated", at(0))
    assert isinstance(said[-1], End) and said[-1].code == "nodes.host_refused"
    assert machine.stop() == [] and machine.on_renewed(SECOND, ()) == [] and machine.on_renewal_failed("", at(0)) == []


def test_a_link_that_stands_too_late_is_closed() -> None:
    machine = connected()
    assert machine.on_opened(1, WELCOME, at(1)) == [CloseLink(1)]
    assert machine.on_opened(7, WELCOME, at(1)) == [CloseLink(7)]


@pytest.mark.parametrize(("before", "closed"), [("connecting", {1}), ("online", {1}), ("switching", {1, 2})])
def test_stopping_closes_every_link(before: str, closed: set[int]) -> None:
    machine = {"online": connected, "switching": switching}.get(before, lambda: LinkMachine(FIRST, lambda: 1.0))()
    if before == "connecting":
        tick(machine, 0)
    assert {each.link for each in machine.stop() if isinstance(each, CloseLink)} == closed
    assert tick(machine, 10**9) == []


def test_every_state_takes_or_refuses_every_event() -> None:
    for pair in itertools.product(LinkState, LinkEvent):
        if pair not in TRANSITIONS:
            with pytest.raises(HostMisused):
                step(TRANSITIONS, *pair)
    assert not [pair for pair in TRANSITIONS if pair[0] is LinkState.ENDED]
