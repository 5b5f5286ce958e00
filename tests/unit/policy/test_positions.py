"""A problem is shown where it is."""

from palyra.policy.bundle import Location, SourceText
from palyra.policy.limits import MAX_SHOWN_SOURCE_CHARS

SOURCE = SourceText(name="x.cedar", text="first\r\n\tsecond line\nthird")


def test_offsets_become_lines_and_columns_from_one() -> None:
    assert SOURCE.locate(0) == Location(file="x.cedar", line=1, column=1)
    assert str(SOURCE.locate(SOURCE.text.index("line"))) == "x.cedar:2:9"
    assert str(SOURCE.locate(len(SOURCE.text))) == "x.cedar:3:6"


def test_the_caret_stands_under_the_place_also_after_a_tab() -> None:
    shown = SOURCE.problem(SOURCE.text.index("line"), "odd word").render()
    assert shown == "x.cedar:2:9: odd word\n  2 | \tsecond line\n    | \t       ^"


def test_a_line_without_its_carriage_return_is_shown() -> None:
    assert SOURCE.problem(0, "m").source == "first"


def test_a_long_line_is_cut_around_the_caret() -> None:
    text = "a" * 5000 + "!" + "b" * 5000
    lines = SourceText(name="x", text=text).problem(5000, "m").render().splitlines()
    assert len(lines[1]) < MAX_SHOWN_SOURCE_CHARS + 20
    assert lines[1][lines[2].index("^")] == "!"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in SourceText(name="x", text="a\x1b[31mb").problem(0, "m").render()


def test_a_problem_without_source_is_one_line() -> None:
    assert "\n" not in SourceText(name="x", text="").problem(0, "m").render()
