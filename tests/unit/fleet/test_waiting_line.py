import pytest

from palyra.fleet.domain.placement import TooManyWaiting, WaitingLine


def anything(_item: object) -> bool:
    return True


def test_runs_take_turns_and_each_keeps_its_order() -> None:
    line: WaitingLine[str] = WaitingLine()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        line.add(item[0], item)
    assert [line.take(anything) for _ in range(7)] == ["a1", "b1", "c1", "a2", "b2", "a3", None]
    assert len(line) == 0


def test_one_that_does_not_fit_keeps_its_turn() -> None:
    line: WaitingLine[str] = WaitingLine()
    for item in ("a-gpu", "a-cpu", "b-cpu"):
        line.add(item[0], item)
    assert line.take(lambda item: item.endswith("cpu")) == "b-cpu"
    assert line.take(lambda item: item.endswith("cpu")) is None
    assert line.take(anything) == "a-gpu"


def test_who_gives_up_leaves_no_trace() -> None:
    line: WaitingLine[str] = WaitingLine()
    line.add("a", "a1")
    line.discard("a", "other")
    line.discard("b", "a1")
    assert len(line) == 1
    line.discard("a", "a1")
    line.discard("a", "a1")
    assert len(line) == 0 and line.take(anything) is None


def test_the_line_is_bounded() -> None:
    line: WaitingLine[int] = WaitingLine(limit=2)
    line.add("a", 1)
    line.add("b", 2)
    with pytest.raises(TooManyWaiting):
        line.add("c", 3)
    assert line.take(anything) == 1
    line.add("c", 3)
