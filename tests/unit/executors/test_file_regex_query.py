import threading
import time

import pytest

from palyra.executors.files import query
from palyra.executors.files.query import Found, RegexProcess, TimeUp
from palyra.workspace.errors import BadPattern, Cancelled, IoFailed, RegexUnavailable


def process(pattern: str, *, seconds: float = 3600, cancelled: threading.Event | None = None) -> RegexProcess:
    deadline = time.monotonic() + seconds
    return RegexProcess(pattern, case_sensitive=True, deadline=deadline, cancelled=cancelled or threading.Event())


def going() -> None:
    """There is always time."""


def test_finds_what_re_finds() -> None:
    with process(r"\bn\w+e$") as regex:
        assert regex.may_match(b"")
        assert regex.find(["a needle", "needles", "nie"], 9, going) == [Found(0, 2), Found(2, 0)]
        assert regex.find(["é nine"] * 5000, 2, going) == [Found(0, 2), Found(1, 2)]
        assert len(regex.find(["x nine" * 600] * 500, 9999, going)) == 500


def test_a_bad_pattern_is_refused() -> None:
    for pattern in ("(", "[z-a]", ""):
        with pytest.raises(BadPattern), process(pattern):
            pass


def test_a_bomb_ends_at_the_deadline_and_its_process_is_gone() -> None:
    with process("(a|a)+b", seconds=1.0) as regex:
        child = regex._child
        assert child is not None
        with pytest.raises(TimeUp):
            regex.find(["a" * 60], 9, going)
    assert child.returncode is not None


def test_a_cancelled_bomb_ends_at_once() -> None:
    cancelled = threading.Event()
    with process("(a|a)+b", cancelled=cancelled) as regex:
        cancelled.set()
        with pytest.raises(Cancelled):
            regex.find(["a" * 60], 9, going)


def test_a_child_that_dies_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "REGEX_CPU_SECONDS", 1)
    with process("(a|a)+b") as regex:
        with pytest.raises(BadPattern):
            regex.find(["a" * 60], 9, going)
        with pytest.raises(BadPattern):
            regex.find(["a" * 60], 9, going)


def test_a_closed_process_answers_nothing() -> None:
    regex = process("a")
    with regex:
        pass
    regex.close()
    with pytest.raises(IoFailed):
        regex.find(["a"], 1, going)


def test_a_process_that_cannot_start_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query.sys, "executable", "/nonexistent/python")
    with pytest.raises(RegexUnavailable), process("a"):
        pass
