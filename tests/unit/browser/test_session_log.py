"""The events of a session: numbered without gaps, without secrets, and bounded whatever a page does."""

import pytest

from palyra.browser.domain.session_api import (
    ACTED,
    MAX_EVENTS,
    MAX_REFUSALS,
    MAX_TEXT_CHARS,
    REFUSED,
    Caller,
    SessionEvent,
    SessionLog,
)


def log() -> SessionLog:
    return SessionLog(lambda: 7, lambda text: text.replace("hunter2", "[redacted]"))


def test_events_say_who_and_what_without_secrets() -> None:
    kept = log()
    kept.add(ACTED, text="type hunter2", tab="t1", caller=Caller(principal="agent:a", run_id="R", call_id="C"))
    kept.add(ACTED, code="browser.stale_ref", caller=Caller(principal="agent:a", operator="user:o"))
    first, second = kept.after(0)
    assert (first.number, first.at_ms, first.text, first.actor, first.call_id) == (
        *(1, 7, "type [redacted]", "agent:a", "C"),
    )
    assert (second.number, second.code, second.actor) == (2, "browser.stale_ref", "user:o")
    assert kept.after(1) == (second,)
    assert kept.after(2) == ()


@pytest.mark.promise("P-limits")
def test_a_flood_of_refusals_hides_nothing_else_and_the_log_is_bounded() -> None:
    kept = log()
    for _ in range(3 * MAX_REFUSALS):
        kept.add(REFUSED, text="x" * 5_000, code="egress.host_not_allowed")
    kept.add(ACTED, text="click")
    numbers = [event.number for event in kept.after(0)]
    assert numbers == list(range(1, MAX_REFUSALS + 2))
    assert all(len(event.text) <= MAX_TEXT_CHARS for event in kept.after(0))
    for _ in range(2 * MAX_EVENTS):
        kept.add(ACTED)
    assert len(kept.after(0)) == MAX_EVENTS


def test_who_listens_hears_each_event_until_they_stop() -> None:
    kept = log()
    received: list[SessionEvent] = []
    stop = kept.subscribe(received.append)
    kept.add(ACTED, text="click")
    stop()
    kept.add(ACTED, text="hover")
    assert [event.text for event in received] == ["click"]
