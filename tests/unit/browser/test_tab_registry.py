"""Names of tabs are given once, room is counted, and there is an active one while there is any."""

from typing import Any

import pytest

from palyra.browser.domain.budget import BudgetSpent
from palyra.browser.domain.page_address import Refusals
from palyra.browser.domain.page_errors import UnknownTab
from palyra.browser.tabs.tab import TabPage, TabRegistry


def registry(most: int = 3) -> TabRegistry:
    return TabRegistry(most, Refusals(str))


def come(tabs: TabRegistry, opener: str = "") -> TabPage:
    nothing: Any = None
    made = tabs.add(lambda name: TabPage(nothing, name, f"target-{name}", "S", nothing, opener))
    assert made is not None
    return made


def test_a_name_is_never_given_again() -> None:
    tabs = registry()
    first, second = come(tabs), come(tabs)
    tabs.remove(second)
    third = come(tabs)
    assert [each.tab for each in (first, second, third)] == ["t1", "t2", "t3"]
    assert tabs.find("") is first and tabs.find("t3") is third
    with pytest.raises(UnknownTab):
        tabs.find("t2")
    assert tabs.since(2) == (third,)


def test_there_is_room_for_so_many() -> None:
    tabs = registry(1)
    only = come(tabs)
    with pytest.raises(BudgetSpent):
        tabs.require_room()
    assert tabs.add(lambda name: only) is None
    tabs.remove(only)
    # Told twice, it leaves once.
    tabs.remove(only)
    come(tabs)
    assert tabs.add(lambda name: only) is None and len(tabs) == 1


def test_the_opener_is_active_after_its_popup_and_else_the_newest() -> None:
    tabs = registry()
    first, popup, other = come(tabs), come(tabs, "t1"), come(tabs)
    tabs.active = popup.tab
    tabs.remove(popup)
    assert tabs.active == first.tab
    tabs.remove(first)
    assert tabs.active == other.tab and "t3" in tabs
    tabs.remove(other)
    assert tabs.active == ""
    with pytest.raises(UnknownTab):
        tabs.find("")
