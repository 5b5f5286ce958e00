"""What is marked where two values differ."""

import pytest

from palyra.server.console.argument_diff import MAX_COMPARED, Comparison, Pieces, make_visible


def marked(pieces: Pieces) -> str:
    return "".join(f"[{piece.text}]" if piece.changed else piece.text for piece in pieces)


@pytest.mark.promise("P-approval-shown")
@pytest.mark.parametrize(
    ("before", "after", "was", "now"),
    [
        ("- ship it\n", "- ship it on Friday\n", "- ship it\n", "- ship it[ on Friday]\n"),
        ("notes/plan.md", "notes/today.md", "notes/[plan].md", "notes/[today].md"),
        ("https://a.example/x?y=1", "https://a.evil/x?y=1", "https://a.[example]/x?y=1", "https://a.[evil]/x?y=1"),
        ("push now to main", "push the lot to main", "push [now] to main", "push [the lot] to main"),
        (
            "the cat sat on the mat",
            "a dog lay under every rug",
            "[the cat sat on the mat]",
            "[a dog lay under every rug]",
        ),
        ("rm -rf ./x", "rm -rf / x", "rm -rf [.]/x", "rm -rf /[␣]x"),
        ("a b", "a  b", "a[␣]b", "a[␣␣]b"),
        ("done\n", "done", "done[↵\n]", "done"),
        ("paypal now", "pay\u200bpal now", "[paypal] now", "[pay\\u200bpal] now"),
        # What is written as a sign or an escape is told from the sign or the escape itself.
        ("a b", "a␣b", "[a b]", "[a\\u2423b]"),
        ("a\u200bb now then", "a\\u200bb now then", "[a\\u200bb] now then", "[a\\\\u200bb] now then"),
        ("a b", "a\tb", "a[␣]b", "a[\\t]b"),
        ("1", "2", "[1]", "[2]"),
        ("", "x", "", "[x]"),
    ],
)
def test_words_that_changed_are_marked_and_can_be_seen(before: str, after: str, was: str, now: str) -> None:
    assert tuple(map(marked, Comparison().of(before, after))) == (was, now)


def test_a_value_too_long_to_compare_is_marked_from_its_first_difference_to_its_last() -> None:
    many = " ".join(f"w{number}" for number in range(MAX_COMPARED))
    was, now = Comparison().of(f"begin {many} end {many}", f"begin x {many} y end {many}")
    assert marked(was) == f"begin [{many}] end {many}"
    assert marked(now) == f"begin [x {many} y] end {many}"


@pytest.mark.promise("P-approval-shown")
def test_what_is_compared_is_bounded_for_all_values_together() -> None:
    comparison = Comparison(words=8)
    first = comparison.of("a 1 b 2 same same", "c 1 d 2 same same")
    again = comparison.of("a 1 b 2 same same", "c 1 d 2 same same")
    assert marked(first[0]) == "[a] 1 [b] 2 same same" and marked(again[0]) == "[a 1 b] 2 same same"


def test_only_what_would_not_be_seen_is_written_out() -> None:
    assert make_visible("two\nlines\n") == "two\nlines↵\n"
    assert make_visible("\u202etxt.exe") == "\\u202etxt.exe"
