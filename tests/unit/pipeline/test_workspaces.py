"""Which principal works in which workspace, and which settings leave that open."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import InvalidInput
from palyra.ids import Principal
from palyra.pipeline.domain.workspaces import (
    AmbiguousWho,
    AssignedWorkspace,
    NoWorkspace,
    Workspaces,
    assign_workspaces,
    expand_who,
    fit_one_name,
)
from palyra.workspace.settings import WorkspaceTable

GROUPS = {"data": ("agent:etl", "agent:d*"), "operators": ("user:op",)}


def table(*who: str) -> WorkspaceTable:
    return WorkspaceTable(root="/w", who=who)


def workspaces(*others: str, **named: tuple[str, ...]) -> Workspaces:
    rows = tuple(AssignedWorkspace(name=name, root=f"/{name}", who=who) for name, who in named.items())
    return Workspaces(default="/all", others=others, named=rows)


def test_each_principal_has_one_workspace_and_a_full_name_goes_before_a_glob() -> None:
    assigned = workspaces("*", web=("agent:web-*", "user:anna"), one=("agent:web-1",))
    roots = [assigned.of(Principal.parse(f"{who}")) for who in ("agent:web-2", "agent:web-1", "user:anna", "agent:x")]
    assert roots == ["/web", "/one", "/web", "/all"]
    reversed_order = workspaces("*", one=("agent:web-1",), web=("agent:web-*",))
    assert reversed_order.of(Principal.parse("agent:web-1")) == "/one", "the order of the tables means nothing"
    assert Workspaces(default="/all").of(Principal.parse("agent:x")) == "/all"


def test_without_others_a_principal_that_nobody_named_has_none() -> None:
    closed = workspaces(web=("agent:web-*",))
    with pytest.raises(NoWorkspace, match="agent:x") as caught:
        closed.of(Principal.parse("agent:x"))
    assert caught.value.code == "workspace.none_assigned" and "workspace.who" in caught.value.hint
    assert closed.find(Principal.parse("agent:x")) == ""
    some = workspaces("user:*", web=("agent:web-*",))
    assert some.find(Principal.parse("user:x")) == "/all" and some.find(Principal.parse("agent:x")) == ""


def test_groups_stand_for_the_principals_in_them() -> None:
    assert expand_who(("group:data", "user:a", "user:a", "group:operators"), GROUPS) == (
        *("agent:etl", "agent:d*"),
        *("user:a", "user:op"),
    )


@pytest.mark.parametrize("who", ["group:nobody", "group:", "anna", "user:", "device:x", "web-*", "user", "users:*"])
def test_a_word_that_no_principal_fits_is_refused(who: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        expand_who((who,), GROUPS)
    assert caught.value.code in ("workspace.bad_who", "principal.malformed") and caught.value.hint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("agent:*", "agent:web-*"),
        ("agent:web-*", "agent:*-test"),
        ("user:anna", "user:anna"),
        ("*", "user:a*"),
        ("agent:[ab]*", "agent:?x"),
        ("group:data", "agent:etl"),
        ("agent:do?", "group:data"),
    ],
)
def test_two_workspaces_that_can_name_one_principal_are_refused(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        with pytest.raises(AmbiguousWho, match="a and b can name the same principal"):
            assign_workspaces({"a": table(first), "b": table(second)}, GROUPS)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("agent:web-*", "user:*"),
        ("agent:web-*", "agent:web-1"),
        ("agent:[!a]*", "agent:a*"),
        ("agent:?", "agent:??"),
        ("agent:*-a", "agent:*-b"),
    ],
)
def test_two_workspaces_that_never_meet_are_fine(one: str, other: str) -> None:
    assert len(assign_workspaces({"a": table(one), "b": table(other)}, GROUPS)) == 2


_GLOB = st.text("ab*?", max_size=6) | st.sampled_from(["[ab]*", "[!a]b", "a[!ab]*", "[", "a]"])


@given(_GLOB, _GLOB)
def test_no_pair_of_globs_that_fit_one_name_is_missed(first: str, second: str) -> None:
    from fnmatch import fnmatchcase

    names = ("".join(each) for length in range(8) for each in product("abc", repeat=length))
    assert fit_one_name(first, second) >= any(fnmatchcase(one, first) and fnmatchcase(one, second) for one in names)
