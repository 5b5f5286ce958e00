"""What differs between two calls, and which approved one is the nearest."""

from typing import Any

from palyra.pipeline.domain.approval import Approval, ApprovalBinding, ApprovalState
from palyra.server.console.argument_diff import MAX_LEAVES, Change, compare_arguments, find_nearest
from palyra.server.console.limits import MAX_SHOWN_CHARS


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


def test_leaves_are_compared_by_their_place() -> None:
    lines = compare_arguments({"a": [1, 2], "b": {"c": "x"}, "gone": True}, {"a": [1, 3], "b": {"c": "x"}, "new": {}})
    assert {(line.place, line.change, line.before, line.after) for line in lines} == {
        ("a[0]", Change.SAME, "1", "1"),
        ("a[1]", Change.CHANGED, "2", "3"),
        ("b.c", Change.SAME, "x", "x"),
        ("gone", Change.GONE, "true", ""),
        ("new", Change.ADDED, "", "{}"),
    }


def test_the_most_similar_one_is_chosen_and_never_the_request_itself() -> None:
    waiting = approval("3", path="a", mode="w")
    found = find_nearest(waiting, [waiting, approval("2", path="b", mode="r"), approval("1", path="b", mode="w")])
    assert found is not None and found.approval.id == "1" and found.changes == 1
    assert find_nearest(waiting, [waiting]) is None


def test_an_endless_list_of_differences_ends() -> None:
    assert len(compare_arguments({}, {str(number): number for number in range(MAX_LEAVES * 2)})) == MAX_LEAVES


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
        "same": (),
    }


def test_a_difference_past_what_is_shown_marks_all_that_is() -> None:
    long = "x" * MAX_SHOWN_CHARS
    found = find_nearest(approval("2", text=f"{long}b"), [approval("1", text=f"{long}a")])
    assert found is not None
    assert [piece.changed for piece in found.lines[0].now] == [True, False]
    assert found.lines[0].now[1].text == "\n… 1 more characters"
