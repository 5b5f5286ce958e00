from palyra.fleet.server.lease_service import Pace


def test_the_present_second_and_the_one_before_count_and_nothing_older() -> None:
    pace = Pace()
    assert pace.per_second(0.0) == 0
    for now in (7.1, 7.2, 7.9):
        pace.count(now)
    assert pace.per_second(7.95) == pace.per_second(8.9) == 3
    pace.count(8.95)
    assert pace.per_second(8.99) == 3 and pace.per_second(9.5) == 1
    assert pace.per_second(10.0) == 0
    pace.count(10.5)
    assert pace.per_second(12.1) == 0
