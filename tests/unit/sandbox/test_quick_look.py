from pathlib import Path

import pytest

from palyra.sandbox import limits
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.quick_look import MAX_REMEMBERED, QuickLook, is_local

ROOT = "/work/space"


def learned(tmp_path: Path) -> tuple[QuickLook, str]:
    quick = QuickLook()
    quick.learn(str(tmp_path), 3, 0.0001)
    return quick, str(tmp_path)


def test_nothing_is_expected_of_a_place_that_was_never_looked_at(tmp_path: Path) -> None:
    assert not QuickLook().expects(str(tmp_path), ProcessCommand(command="true"))


def test_a_small_place_is_looked_at_at_once_until_it_grows_or_is_slow(tmp_path: Path) -> None:
    for entries, seconds in ((limits.QUICK_ENTRIES, 0.0001), (3, limits.QUICK_SECONDS * 2)):
        quick, root = learned(tmp_path)
        assert quick.expects(root, ProcessCommand(command="true"))
        quick.learn(root, entries, seconds)
        assert not quick.expects(root, ProcessCommand(command="true"))


@pytest.mark.parametrize(
    ("words", "stays"),
    [
        (("-la", "src/main.c", "--all", "a=b"), True),
        (("/usr/include/stdio.h",), True),
        (("../x",), False),
        (("/net/elsewhere/x",), False),
        (("--file=/net/elsewhere/x",), False),
        (("-I/net/x",), False),
        (("a:/net/x",), False),
        (("@/net/x",), False),
        (("file:///net/x",), False),
        (("src//net",), False),
    ],
)
def test_a_word_that_may_lead_anywhere_is_for_a_thread(tmp_path: Path, words: tuple[str, ...], stays: bool) -> None:
    quick, root = learned(tmp_path)
    assert quick.expects(root, ProcessCommand(command="ls", args=words)) is stays
    if stays:
        assert quick.expects(root, ProcessCommand(command=f"{root}/program", args=(f"{root}/a/b", *words)))
    assert not quick.expects(root, ProcessCommand(command="/net/program"))
    assert not quick.expects(root, ProcessCommand(command="ls", cwd="/net"))


def test_it_does_not_grow_without_end(tmp_path: Path) -> None:
    quick = QuickLook()
    for number in range(MAX_REMEMBERED + 2):
        place = tmp_path / str(number)
        place.mkdir()
        quick.learn(str(place), 0, 0.0)
    assert len(quick._quick) <= MAX_REMEMBERED


def test_only_disks_of_this_machine_count() -> None:
    assert not is_local("/proc") and not is_local("/nonexistent")
