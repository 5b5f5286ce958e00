"""What differs between two calls, and which approved one is the nearest."""

from typing import Any

from palyra.console.difference import MAX_LEAVES, Change, difference, nearest
from palyra.tools.approval import Approval, ApprovalBinding, ApprovalState


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
    lines = difference({"a": [1, 2], "b": {"c": "x"}, "gone": True}, {"a": [1, 3], "b": {"c": "x"}, "new": {}})
    assert {(line.place, line.change, line.before, line.after) for line in lines} == {
        ("a[0]", Change.SAME, "1", "1"),
        ("a[1]", Change.CHANGED, "2", "3"),
        ("b.c", Change.SAME, "x", "x"),
        ("gone", Change.GONE, "true", ""),
        ("new", Change.ADDED, "", "{}"),
    }


def test_the_most_similar_one_is_chosen_and_never_the_request_itself() -> None:
    waiting = approval("3", path="a", mode="w")
    found = nearest(waiting, [waiting, approval("2", path="b", mode="r"), approval("1", path="b", mode="w")])
    assert found is not None and found.approval.id == "1" and found.changes == 1
    assert nearest(waiting, [waiting]) is None


def test_an_endless_list_of_differences_ends() -> None:
    assert len(difference({}, {str(number): number for number in range(MAX_LEAVES * 2)})) == MAX_LEAVES
