"""What goes into one group, in which order, and what comes after it."""

import queue

import pytest

from palyra.store.sqlite import writer
from palyra.store.sqlite.writer import Queue, Unit, take_batch


def filled(*waiting: Unit | None) -> Queue:
    found: Queue = queue.SimpleQueue()
    for one in waiting:
        found.put(one)
    return found


def units(count: int) -> list[Unit]:
    return [Unit(lambda _transaction: None, None) for _ in range(count)]


def test_all_that_waits_is_taken_in_the_order_in_which_it_came() -> None:
    came = units(3)
    assert take_batch(filled(*came), None) == (came, True, False)


def test_time_that_is_up_seals_and_goes_on() -> None:
    assert take_batch(filled(), 0.0) == ([], True, True)


def test_what_comes_before_the_end_is_done_and_sealed() -> None:
    came = units(2)
    assert take_batch(filled(*came, None), None) == (came, False, True)


def test_what_is_beyond_the_bound_waits_for_the_next_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_BATCH_UNITS", 2)
    came = units(3)
    waiting = filled(*came, None)
    assert take_batch(waiting, None) == (came[:2], True, False)
    assert take_batch(waiting, None) == (came[2:], False, True)
