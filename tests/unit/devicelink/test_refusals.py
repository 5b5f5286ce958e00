from palyra.devicelink.limits import MAX_REFUSAL_KINDS, REFUSALS_RECORDED_EVERY_SECONDS
from palyra.devicelink.server.peer_checks import RefusalCounts, RefusalKind


def kind(number: int = 0) -> RefusalKind:
    return RefusalKind("m", f"code {number}", "d", "f")


def test_the_first_of_each_kind_is_recorded_at_once_and_the_others_are_counted() -> None:
    counts = RefusalCounts()
    assert counts.note(kind(), 0.0) == 1 and counts.note(kind(1), 0.0) == 1
    assert [counts.note(kind(), second) for second in (1.0, 2.0, 59.9)] == [0, 0, 0]
    assert counts.note(kind(), REFUSALS_RECORDED_EVERY_SECONDS) == 4
    assert counts.total == 6


def test_so_many_kinds_are_told_apart_and_memory_stays_bounded() -> None:
    counts = RefusalCounts()
    for number in range(3 * MAX_REFUSAL_KINDS):
        counts.note(kind(number), 0.0)
    assert len(counts._counts) == MAX_REFUSAL_KINDS
    # The newest are remembered, the oldest begin again.
    assert counts.note(kind(3 * MAX_REFUSAL_KINDS - 1), 1.0) == 0 and counts.note(kind(0), 1.0) == 1
