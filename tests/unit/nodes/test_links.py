"""The connection of a device, as transcripts."""

import itertools

import pytest

from fakes.playbook import Playbook, silence
from palyra.devicelink.agent.device_folder import HeldCertificate
from palyra.devicelink.limits import FIRST_DELAY_MS, LONGEST_DELAY_MS
from palyra.nodes import limits
from palyra.nodes.agent.link_state import TRANSITIONS, HostMisused, LinkEvent, LinkKeeper, LinkState, step
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


def tick(keeper: LinkKeeper, ms: int) -> list[Command]:
    return keeper.tick(at(ms), 0, ())


def connected() -> LinkKeeper:
    keeper = LinkKeeper(FIRST, lambda: 1.0)
    (
        Playbook(keeper)
        >> (lambda keeper: tick(keeper, 0))
        << OpenLink(1)
        >> (lambda keeper: keeper.opened(1, WELCOME, at(0)))
        << ShowState("online")
        << Say("connected")
        >> silence
    )
    return keeper


def at_renewal() -> LinkKeeper:
    keeper = connected()
    keeper.heard(1, at(FIRST.renew_at_ms))
    assert tick(keeper, FIRST.renew_at_ms) == [SendHeartbeat(1, 0), RequestRenewal(1)]
    return keeper


def switching() -> LinkKeeper:
    keeper = at_renewal()
    assert keeper.renewed(SECOND, ("R1",)) == [OpenLink(2, ("R1",))]
    return keeper


def test_a_lost_connection_is_tried_again_later_and_later_until_it_stands() -> None:
    keeper = connected()
    assert keeper.lost(1, LossKind.UNREACHABLE, "cut", at(0))[0] == ShowState("offline")
    assert not keeper.online
    now, waits = 0, []
    for number in range(2, 12):
        wake = keeper.next_wake_ms(at(now))
        assert wake is not None and tick(keeper, wake - 1) == []
        assert tick(keeper, wake) == [OpenLink(number)]
        waits.append(wake - now)
        now = wake
        keeper.lost(number, LossKind.UNREACHABLE, "refused", at(now))
    assert waits == sorted(waits) and waits[-1] == LONGEST_DELAY_MS
    wake = keeper.next_wake_ms(at(now))
    assert wake is not None
    tick(keeper, wake)
    keeper.opened(12, WELCOME, at(wake))
    assert keeper.current == 12
    keeper.lost(12, LossKind.UNREACHABLE, "cut", at(wake))
    assert keeper.next_wake_ms(at(wake)) == wake + FIRST_DELAY_MS, "it begins anew"


@pytest.mark.promise("P-device-recovers")
def test_heartbeats_go_out_and_silence_is_a_lost_connection() -> None:
    keeper = connected()
    assert tick(keeper, BEAT - 1) == [] and tick(keeper, BEAT) == [SendHeartbeat(1, 0)]
    keeper.heard(1, at(BEAT))
    for beat in range(2, 2 + limits.SILENT_INTERVALS - 1):
        assert tick(keeper, beat * BEAT) == [SendHeartbeat(1, 0)]
    close, shown, *_ = tick(keeper, BEAT + limits.SILENT_INTERVALS * BEAT)
    assert close == CloseLink(1) and shown == ShowState("offline")


def test_an_interval_of_nothing_does_not_wear_the_device_out() -> None:
    keeper = LinkKeeper(FIRST, lambda: 1.0)
    tick(keeper, 0)
    keeper.opened(1, Welcome(heartbeat_interval_ms=0, max_result_bytes=1), at(0))
    assert keeper.next_wake_ms(at(0)) == limits.SHORTEST_HEARTBEAT_MS


def test_a_renewal_makes_the_new_link_before_it_lets_go_of_the_old() -> None:
    keeper = switching()
    assert keeper.current == 1, "everything still goes over the old link"
    assert keeper.opened(2, WELCOME, at(FIRST.renew_at_ms)) == [RetireLink(1), Say("the new certificate is in use")]
    assert keeper.current == 2 and keeper.online
    # The old link's end is no loss.
    assert keeper.lost(1, LossKind.UNREACHABLE, "retired", at(FIRST.renew_at_ms)) == []
    assert keeper.state is LinkState.ONLINE


def test_a_new_link_that_fails_leaves_the_old_one_and_is_tried_again() -> None:
    keeper = switching()
    now = FIRST.renew_at_ms
    (said,) = keeper.lost(2, LossKind.UNREACHABLE, "no", at(now))
    assert isinstance(said, Say) and keeper.current == 1
    assert tick(keeper, now + FIRST_DELAY_MS - 1) == []
    assert tick(keeper, now + FIRST_DELAY_MS) == [OpenLink(3)], "not another renewal"


def test_the_old_link_lost_while_the_new_one_opens_is_one_short_gap() -> None:
    keeper = switching()
    now = at(FIRST.renew_at_ms)
    assert keeper.lost(1, LossKind.UNREACHABLE, "cut", now) == [ShowState("offline")]
    assert keeper.opened(2, WELCOME, now)[0] == ShowState("online")


def test_a_failed_renewal_is_tried_again_and_the_link_stays() -> None:
    keeper = at_renewal()
    now = FIRST.renew_at_ms
    keeper.renewal_failed("later", at(now))
    assert keeper.current == 1
    assert tick(keeper, now + FIRST_DELAY_MS) == [RequestRenewal(1)]


def test_a_renewal_whose_link_broke_is_asked_for_again_on_the_next() -> None:
    keeper = at_renewal()
    now = FIRST.renew_at_ms
    keeper.lost(1, LossKind.UNREACHABLE, "cut", at(now))
    keeper.renewal_failed("cut", at(now))
    wake = keeper.next_wake_ms(at(now))
    assert wake is not None and tick(keeper, wake) == [OpenLink(2)]
    keeper.opened(2, WELCOME, at(wake))
    due = keeper.next_wake_ms(at(wake))
    assert due is not None and RequestRenewal(2) in tick(keeper, due)


def test_a_renewal_that_outran_the_loss_of_its_link_is_used_by_the_next() -> None:
    keeper = at_renewal()
    now = FIRST.renew_at_ms
    keeper.lost(1, LossKind.UNREACHABLE, "cut", at(now))
    assert keeper.renewed(SECOND, ()) == []
    tick(keeper, now + FIRST_DELAY_MS)
    keeper.opened(2, WELCOME, at(now + FIRST_DELAY_MS))
    assert keeper.state is LinkState.ONLINE
    assert not [each for each in tick(keeper, now + BEAT) if not isinstance(each, SendHeartbeat)]


def test_the_same_certificate_again_is_no_renewal() -> None:
    keeper = at_renewal()
    assert keeper.renewed(FIRST, ()) == [] and keeper.state is LinkState.ONLINE


def test_news_of_authorities_renew_at_once() -> None:
    keeper = connected()
    keeper.renew_now()
    assert tick(keeper, 1) == [RequestRenewal(1)]


@pytest.mark.promise("P-device-recovers")
def test_a_clock_that_is_set_back_does_not_put_the_renewal_off() -> None:
    """By the device's own clock there are hours left; by the daemon's there are not."""
    keeper = connected()
    keeper.next_wake_ms(at(BEAT))
    set_back = Now(wall_ms=FIRST.renew_at_ms - 12 * HOUR, mono_ms=FIRST.renew_at_ms)
    keeper.heard(1, set_back)
    assert RequestRenewal(1) in keeper.tick(set_back, 0, ())


def test_an_ended_certificate_ends_the_host() -> None:
    keeper = connected()
    keeper.lost(1, LossKind.UNREACHABLE, "cut", at(0))
    said = tick(keeper, FIRST.not_after_ms)
    assert isinstance(said[-1], End) and said[-1].code == "nodes.certificate_expired"
    assert keeper.next_wake_ms(at(0)) is None


@pytest.mark.promise("P-limits")
def test_a_daemon_that_says_no_again_and_again_is_believed() -> None:
    keeper = LinkKeeper(FIRST, lambda: 0.0)
    said: list[Command] = []
    for number in range(1, limits.MAX_REFUSALS + 1):
        assert keeper.state is LinkState.OFFLINE
        tick(keeper, keeper.next_wake_ms(at(0)) or 0)
        said = keeper.lost(number, LossKind.REFUSED, "unauthenticated", at(0))
    assert isinstance(said[-1], End) and said[-1].code == "nodes.host_refused"
    assert keeper.stop() == [] and keeper.renewed(SECOND, ()) == [] and keeper.renewal_failed("", at(0)) == []


def test_a_link_that_stands_too_late_is_closed() -> None:
    keeper = connected()
    assert keeper.opened(1, WELCOME, at(1)) == [CloseLink(1)]
    assert keeper.opened(7, WELCOME, at(1)) == [CloseLink(7)]


@pytest.mark.parametrize(("before", "closed"), [("connecting", {1}), ("online", {1}), ("switching", {1, 2})])
def test_stopping_closes_every_link(before: str, closed: set[int]) -> None:
    keeper = {"online": connected, "switching": switching}.get(before, lambda: LinkKeeper(FIRST, lambda: 1.0))()
    if before == "connecting":
        tick(keeper, 0)
    assert {each.link for each in keeper.stop() if isinstance(each, CloseLink)} == closed
    assert tick(keeper, 10**9) == []


def test_every_state_takes_or_refuses_every_event() -> None:
    for pair in itertools.product(LinkState, LinkEvent):
        if pair not in TRANSITIONS:
            with pytest.raises(HostMisused):
                step(TRANSITIONS, *pair)
    assert not [pair for pair in TRANSITIONS if pair[0] is LinkState.ENDED]
