from palyra.journal.pace import (
    EVENTS_BETWEEN_MOVES,
    FIRST_PENALTY,
    FORGIVEN_AFTER,
    MAX_PENALTY,
    QUICK_SECONDS,
    Pace,
)

SLOW = QUICK_SECONDS * 1.2


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
    for times, penalties in ((1, 1), (3, 9), (12, 144)):
        pace = Pace()
        pace.note((times + 0.01) * QUICK_SECONDS, 1, here=True)
        assert quick_ones_until_tried_again(pace) == penalties * FIRST_PENALTY


def stumbling(every, seconds, commits=20_000):
    """How many commits were in the thread, and how long the others were waited for beyond what is quick."""
    pace, in_thread, blocked = Pace(), 0, 0.0
    for number in range(commits):
        here, taken = pace.quick(), seconds if number % every == 0 else 0.0
        in_thread += not here
        blocked += taken * here
        pace.note(taken, 1, here=here)
    return in_thread / commits, blocked


def test_a_disk_that_stumbles_now_and_then_stays_among_the_quick():
    for every, times in ((40, 1.2), (40, 2), (100, 3)):
        assert stumbling(every, times * QUICK_SECONDS)[0] < 0.25


def test_one_that_stands_still_now_and_then_does_not():
    for every, seconds in ((20, 0.1), (40, 0.05), (100, 1.0)):
        in_thread, blocked = stumbling(every, seconds)
        assert in_thread > 0.95 and blocked < 20 * seconds


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
