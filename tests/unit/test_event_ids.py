from ulid import ULID

from palyra.ids import EventId, EventIds


def test_ids_are_ulids_of_their_instant_and_grow():
    ids = EventIds()
    made = [ids.next(1_790_000_000_123) for _ in range(5000)]
    assert made == sorted(made) and len(set(made)) == 5000
    for each in (made[0], made[-1]):
        assert EventId.parse(each)
        assert ULID.from_str(each).milliseconds == 1_790_000_000_123


def test_ids_of_two_processes_differ_in_the_same_millisecond():
    first, second = EventIds(), EventIds()
    assert {first.next(7) for _ in range(1000)}.isdisjoint(second.next(7) for _ in range(1000))


def test_no_id_comes_twice_when_the_clock_goes_back_and_forth():
    ids = EventIds()
    made = [ids.next(time_ms) for _ in range(500) for time_ms in (9, 7, 9, 8)]
    assert len(set(made)) == 2000
    assert all(ULID.from_str(each).milliseconds in (7, 8, 9) for each in made)


def test_a_used_up_counter_takes_a_new_prefix():
    ids = EventIds()
    first = ids.next(7)
    ids._counter = (1 << 20) - 1
    assert ids.next(7)[:22] != first[:22]
