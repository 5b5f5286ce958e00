"""What differs between two calls, and which approved one is the nearest."""

from typing import Any

import pytest

from palyra.pipeline.domain.approval import Approval, ApprovalBinding, ApprovalState
from palyra.server.console.argument_diff import MAX_LINES, Change, compare_arguments, find_nearest


def approval(name: str, **arguments: Any) -> Approval:
    binding = ApprovalBinding(principal="agent:a", tool="t", argument_digest="", bundle_digest="", workspace="")
    return Approval(
        id=name,
        state=ApprovalState.APPROVED,
        binding=binding,
        session="",
        arguments=arguments,
        touches={},
        policies=(),
        created_ms=0,
        expires_ms=1,
    )


def test_values_are_compared_by_their_place() -> None:
    lines = compare_arguments({"a": [1, 2], "b": {"c": "x"}, "gone": True}, {"a": [1, 3], "b": {"c": "x"}, "new": {}})
    assert {(line.place, line.change, line.before, line.after) for line in lines} == {
        ("a[1]", Change.CHANGED, "2", "3"),
        ("gone", Change.GONE, "true", ""),
        ("new", Change.ADDED, "", "{}"),
    }


@pytest.mark.promise("P-approval-shown")
@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        # A key with a dot in it is another place than the one that it spells.
        ({"a": {"b": "ls"}}, {"a.b": "rm", "a": {"b": "ls"}}, '"a.b"'),
        ({"a": ["ls"]}, {"a[0]": "rm", "a": ["ls"]}, '"a[0]"'),
        ({"n": 1}, {"n": "1"}, "n"),
        ({"n": None}, {"n": "null"}, "n"),
        ({"n": []}, {"n": "[]"}, "n"),
        ({"k": "x"}, {"k": "x", "k\u200b": "y"}, '"k\\u200b"'),
    ],
)
def test_no_difference_is_taken_for_the_same(before: dict[str, Any], after: dict[str, Any], place: str) -> None:
    found = find_nearest(approval("2", **after), [approval("1", **before)])
    assert found is not None and not found.same
    (line,) = found.lines
    assert line.place == place and line.before != line.after


def test_the_most_similar_one_is_chosen_and_never_the_request_itself() -> None:
    waiting = approval("3", path="a", mode="w")
    found = find_nearest(waiting, [waiting, approval("2", path="b", mode="r"), approval("1", path="b", mode="w")])
    assert found is not None and found.approval.id == "1" and found.changes == 1
    assert find_nearest(waiting, [waiting]) is None


@pytest.mark.promise("P-approval-shown")
def test_a_difference_behind_many_others_is_counted() -> None:
    many = {str(number): number for number in range(MAX_LINES * 2)}
    found = find_nearest(approval("2", a=1, **many), [approval("1", a=1)])
    assert found is not None and found.changes == MAX_LINES * 2 and found.unmarked == MAX_LINES
    same = find_nearest(approval("2", **many), [approval("1", **many)])
    assert same is not None and same.same


def test_what_differs_is_marked_word_by_word() -> None:
    found = find_nearest(
        approval("2", path="b/x", new="y\n", same="s"), [approval("1", path="a/x", gone=True, same="s")]
    )
    assert found is not None
    marks = {line.place: tuple((piece.text, piece.changed) for piece in (*line.was, *line.now)) for line in found.lines}
    assert marks == {
        "path": (("a", True), ("/x", False), ("b", True), ("/x", False)),
        "new": (("y↵\n", True),),
        "gone": (("true", True),),
    }


@pytest.mark.promise("P-approval-shown")
@pytest.mark.parametrize("hidden", ["\u200b", "\u202e", "\u034f", "\U000e0041", "\ufe0f", "\u2800", "\x85", "e\u0301"])
def test_a_character_without_a_shape_is_spelled_out_in_each_piece(hidden: str) -> None:
    found = find_nearest(approval("2", text=f"same{hidden} new"), [approval("1", text=f"same{hidden} old")])
    assert found is not None
    for pieces in (found.lines[0].was, found.lines[0].now):
        assert hidden not in "".join(piece.text for piece in pieces)
        assert "\\u" in "".join(piece.text for piece in pieces)


def test_a_difference_at_the_end_of_a_long_text_is_shown() -> None:
    long = "x " * 60_000
    found = find_nearest(approval("2", text=f"{long}b"), [approval("1", text=f"{long}a")])
    assert found is not None
    assert [piece.changed for piece in found.lines[0].now] == [False, True]
    assert found.lines[0].now[1].text == "b" and found.lines[0].now[0].text == long
