"""Budgets are clamped field by field, and counted."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.browser.domain.budget import (
    ACTION_WINDOW_MS,
    FIELDS,
    BadBudget,
    BudgetSpent,
    SessionBudget,
    SessionMeter,
    SessionOver,
    TooFast,
    TooLarge,
    clamp,
)

values = st.integers(1, 2**40)
WINDOW = ACTION_WINDOW_MS / 1_000


@given(st.dictionaries(st.sampled_from(FIELDS), values), st.fixed_dictionaries(dict.fromkeys(FIELDS, values)))
def test_every_field_is_the_smaller_of_asked_and_ceiling(asked: dict[str, int], most: dict[str, int]) -> None:
    got = msgspec.structs.asdict(clamp(asked, SessionBudget(**most)))
    assert got == {name: min(asked.get(name, most[name]), most[name]) for name in FIELDS}


@pytest.mark.parametrize("name", FIELDS)
def test_no_field_can_be_raised(name: str) -> None:
    ceiling = SessionBudget()
    assert clamp({name: 2**40}, ceiling) == ceiling
    assert getattr(clamp({name: 1}, ceiling), name) == 1


@pytest.mark.parametrize(
    "asked", [{"max_tabs": 1}, {"idle_ttl_ms": 0}, {"idle_ttl_ms": -1}, {"idle_ttl_ms": True}, {"idle_ttl_ms": 1.5}]
)
def test_what_makes_no_sense_is_refused_rather_than_guessed(asked: dict[str, int]) -> None:
    with pytest.raises(BadBudget):
        clamp(asked, SessionBudget())


def test_downloads_may_be_none_at_all() -> None:
    assert clamp({"max_session_downloads": 0}, SessionBudget()).max_session_downloads == 0


def test_a_session_ends_by_its_age_however_busy() -> None:
    meter = SessionMeter(SessionBudget(max_session_lifetime_ms=1_000, idle_ttl_ms=400), now=100.0)
    for instant in (100.3, 100.6, 100.9):
        meter.use(instant)
    with pytest.raises(SessionOver) as refusal:
        meter.use(101.0)
    assert refusal.value.details["reason"] == "lifetime"


def test_a_session_nobody_uses_ends_and_the_cleanup_is_no_use() -> None:
    meter = SessionMeter(SessionBudget(idle_ttl_ms=400), now=0.0)
    assert meter.why_over(0.39) is None
    assert meter.why_over(0.4) == "idle"
    with pytest.raises(SessionOver):
        meter.spend_action(0.4)
    assert meter.actions == 0


def test_actions_of_a_session_end() -> None:
    meter = SessionMeter(SessionBudget(max_actions_per_session=3), now=0.0)
    for _ in range(3):
        meter.spend_action(0.0)
    with pytest.raises(BudgetSpent):
        meter.spend_action(60.0)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=80).map(sorted), st.integers(1, 6))
def test_no_window_ever_holds_more_than_its_actions(instants: list[float], most: int) -> None:
    meter = SessionMeter(SessionBudget(max_actions_per_window=most), now=0.0)
    done: list[float] = []
    for instant in instants:
        try:
            meter.spend_action(instant)
        except TooFast as refusal:
            assert 1 <= refusal.details["retry_after_ms"] <= ACTION_WINDOW_MS
        else:
            done.append(instant)
    assert all(later - earlier >= WINDOW for earlier, later in zip(done, done[most:], strict=False))
    assert meter.actions == len(done)


def test_waiting_as_told_is_enough() -> None:
    meter = SessionMeter(SessionBudget(max_actions_per_window=2), now=0.0)
    meter.spend_action(0.0)
    meter.spend_action(0.25)
    with pytest.raises(TooFast) as refusal:
        meter.spend_action(0.5)
    meter.spend_action(0.5 + refusal.value.details["retry_after_ms"] / 1_000)


def test_sizes() -> None:
    meter = SessionMeter(SessionBudget(max_type_input_bytes=4), now=0.0)
    meter.require("max_type_input_bytes", 4)
    with pytest.raises(TooLarge):
        meter.require("max_type_input_bytes", 5)


def test_a_wait_is_within_its_field_and_the_life_of_the_session() -> None:
    meter = SessionMeter(SessionBudget(max_action_timeout_ms=500, max_session_lifetime_ms=1_000), now=0.0)
    assert meter.timeout_ms(None, "max_action_timeout_ms", 0.0) == 500
    assert meter.timeout_ms(200, "max_action_timeout_ms", 0.0) == 200
    assert meter.timeout_ms(9_000, "max_action_timeout_ms", 0.0) == 500
    assert meter.timeout_ms(9_000, "max_action_timeout_ms", 0.75) == 250
    assert meter.timeout_ms(9_000, "max_action_timeout_ms", 2.0) == 1
