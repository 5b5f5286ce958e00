"""Which results are dropped: the oldest, of the principal that holds the most, never more than are too many."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.pipeline.retention import choose_holder, take_bytes
from palyra.pipeline.store.result_tables import Holding, KeptResult


def holding(principal: str, size: int) -> Holding:
    return Holding(principal=principal, results=1, bytes=size)


def kept(number: int, size: int) -> KeptResult:
    return KeptResult(principal="agent:a", call_id=str(number), bytes=size, output_digest="")


def test_nothing_is_dropped_within_the_bound() -> None:
    assert choose_holder([holding("agent:a", 60), holding("agent:b", 40)], 100) is None
    assert choose_holder([], 100) is None


def test_the_largest_holder_gives_up_until_another_is_as_large() -> None:
    assert choose_holder([holding("agent:b", 40), holding("agent:a", 90)], 100) == ("agent:a", 30)
    assert choose_holder([holding("agent:b", 40), holding("agent:a", 90)], 50) == ("agent:a", 50)
    # Equals take turns, and each turn drops something.
    assert choose_holder([holding("agent:a", 70), holding("agent:b", 70)], 100) == ("agent:a", 1)


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(1, 50), max_size=5), st.integers(0, 200))
def test_who_holds_less_than_an_even_share_loses_nothing(sizes: dict[str, int], bound: int) -> None:
    left = dict(sizes)
    while chosen := choose_holder([holding(name, size) for name, size in left.items() if size], bound):
        principal, size = chosen
        assert size > 0
        left[principal] -= size
    assert sum(left.values()) == min(bound, sum(sizes.values()))
    for name, size in sizes.items():
        assert left[name] == size or left[name] + 1 >= bound // len(sizes)


def test_whole_results_are_taken_from_the_oldest_on() -> None:
    results = [kept(1, 10), kept(2, 20), kept(3, 30)]
    assert take_bytes(results, 1) == results[:1]
    assert take_bytes(results, 11) == results[:2]
    assert take_bytes(results, 1_000) == results
