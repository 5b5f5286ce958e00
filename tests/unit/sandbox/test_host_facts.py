"""Folding: many protected names need few mounts, and nothing that was asked for is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.sandbox.domain.facts import Names
from palyra.sandbox.layers.protected_mounts import TooManyProtected, fold, with_ancestors

NAMES = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=4).map(tuple)


def covered(names: Names, kept: frozenset[Names]) -> bool:
    return any(names[:cut] in kept for cut in range(1, len(names) + 1))


@given(st.frozensets(NAMES, max_size=40), st.integers(min_value=4, max_value=30))
def test_everything_stays_covered_within_the_budget(protected: frozenset[Names], budget: int) -> None:
    kept = fold(protected, budget)
    assert all(covered(names, kept) for names in protected)
    assert len(with_ancestors(kept)) <= budget
    assert () not in kept


def test_few_names_are_kept_as_they_are_and_names_beneath_others_vanish() -> None:
    protected = frozenset({(b".git", b"hooks"), (b".git", b"hooks", b"x"), (b".env",)})
    assert fold(protected) == {(b".git", b"hooks"), (b".env",)}
    assert with_ancestors(fold(protected)) == {(b".git",), (b".git", b"hooks"), (b".env",)}


def test_the_deepest_directory_that_suffices_becomes_read_only() -> None:
    many = {(b"web", b"node_modules", b"p%d" % number, b".vscode") for number in range(900)}
    kept = fold(frozenset({*many, (b".git", b"hooks")}))
    assert kept == {(b"web", b"node_modules"), (b".git", b"hooks")}


def test_names_in_the_root_cannot_be_folded_without_end() -> None:
    assert len(fold(frozenset((b".env%d" % number,) for number in range(900)))) == 900
    with pytest.raises(TooManyProtected):
        fold(frozenset((b".env%d" % number,) for number in range(1_100)))
