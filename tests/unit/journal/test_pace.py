from palyra.journal.pace import (
    EVENTS_BETWEEN_MOVES,
    FIRST_PENALTY,
    FORGIVEN_AFTER,
    MAX_PENALTY,
    QUICK_SECONDS,
    Pace,
)

SLOW = QUICK_SECONDS * 1.5


def quick_ones_until_tried_again(pace):
    for count in range(2 * MAX_PENALTY):
        if pace.quick():
            return count
        pace.note(0.0, 1, here=False)
    raise AssertionError("never again")


def test_a_slow_disk_is_tried_ever_more_seldom_but_always_again():
    pace, waits = Pace(), []
    for _ in range(12):
        assert pace.quick()
        pace.note(SLOW, 1, here=True)
        waits.append(quick_ones_until_tried_again(pace))
    assert waits[:3] == [FIRST_PENALTY, 2 * FIRST_PENALTY, 4 * FIRST_PENALTY]
    assert waits[-1] == MAX_PENALTY


def test_the_slower_it_was_the_longer_it_is_not_waited_for():
    for times in (1, 5, 25):
        pace = Pace()
        pace.note(times * SLOW, 1, here=True)
        assert quick_ones_until_tried_again(pace) == int(times * 1.5) * FIRST_PENALTY


def test_a_disk_that_stumbles_now_and_then_stays_among_the_quick():
    pace, in_thread, commits = Pace(), 0, 4_000
    for number in range(commits):
        here = pace.quick()
        in_thread += not here
        pace.note(SLOW if number % 40 == 0 else 0.0, 1, here=here)
    assert in_thread < commits / 10


def test_what_is_slow_in_the_thread_alone_changes_nothing():
    pace = Pace()
    pace.note(SLOW, 500, here=False)
    assert pace.quick(), "a large group takes long on any disk"


def test_a_disk_that_stays_slow_is_waited_for():
    pace = Pace()
    pace.note(SLOW, 1, here=True)
    quick_ones_until_tried_again(pace)
    pace.note(SLOW, 1, here=True)
    for _ in range(2 * FIRST_PENALTY - 1):
        pace.note(0.0, 1, here=False)
    pace.note(SLOW, 1, here=False)
    assert quick_ones_until_tried_again(pace) >= FIRST_PENALTY


def test_events_of_both_threads_are_moved_together():
    pace = Pace()
    pace.note(0.0, EVENTS_BETWEEN_MOVES - 1, here=False)
    assert not pace.move_due()
    pace.note(0.0, 1, here=True)
    assert pace.move_due()
    pace.moved()
    assert not pace.move_due()


def test_a_disk_that_was_slow_once_is_forgiven():
    pace = Pace()
    for _ in range(3):
        pace.note(SLOW, 1, here=True)
        quick_ones_until_tried_again(pace)
    for _ in range(FORGIVEN_AFTER):
        pace.note(0.0, 1, here=True)
    pace.note(SLOW, 1, here=True)
    assert quick_ones_until_tried_again(pace) == FIRST_PENALTY
