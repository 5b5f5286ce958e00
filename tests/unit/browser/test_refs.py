"""Refs are given once, keep their meaning, and are refused when nobody knows it any more."""

import pytest

from palyra.browser.domain import page_tree
from palyra.browser.domain.page_errors import UnknownRef
from palyra.browser.domain.page_tree import Bound, RefCounter, RefRegistry, rank, render_element


def bound(number: int, name: str = "Buy", loader: str = "l") -> Bound:
    return Bound(frame_id="f", loader_id=loader, number=number, role="button", name=name)


@pytest.mark.promise("P-browser-target")
def test_the_same_element_keeps_its_ref_and_nothing_else_gets_it() -> None:
    counter = RefCounter()
    one, other = RefRegistry(counter), RefRegistry(counter)
    assert one.bind(bound(1)) == "e1"
    assert one.bind(bound(1)) == "e1"
    assert one.bind(bound(1, "Sold")) == "e2"
    assert one.bind(bound(1, loader="m")) == "e3"
    assert other.bind(bound(1)) == "e4"
    assert one.get("e2") == bound(1, "Sold")


def test_a_ref_of_another_tab_and_one_that_was_never_given() -> None:
    counter = RefCounter()
    RefRegistry(counter).bind(bound(1))
    with pytest.raises(UnknownRef, match="another tab"):
        RefRegistry(counter).get("e1")
    for odd in ("e2", "e0", "x", "e1 ", "E1", ""):
        with pytest.raises(UnknownRef):
            RefRegistry(counter).get(odd)


@pytest.mark.promise("P-limits")
def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_tree, "MAX_REFS", 3)
    registry = RefRegistry(RefCounter())
    given = [registry.bind(bound(number)) for number in range(5)]
    assert len(registry) == 3
    with pytest.raises(UnknownRef, match="long gone"):
        registry.get(given[0])
    assert registry.bind(bound(0)) == "e6"


def test_the_nearest_is_the_same_name_then_one_that_holds_it_then_one_spelled_like_it() -> None:
    found = [bound(n, name) for n, name in enumerate(("Cancel", "Buy now", "Buy", "Bux"))]
    assert [each.name for each in rank("Buy", found)] == ["Buy", "Buy now", "Bux"]
    assert rank("zzz", found) == []


def test_a_long_name_is_cut_in_an_error() -> None:
    assert render_element("button", "x" * 100) == f"button '{'x' * 59}…'"
    assert render_element("main", "") == "main"
