"""The tabs a session has: their names, which is the active one, and how many there may be."""

from collections.abc import Callable

from palyra.browser.budget import BudgetSpent, SessionMeter
from palyra.browser.page_errors import UnknownTab
from palyra.browser.refusals import Refusals
from palyra.browser.tab_page import TabPage


class TabBook:
    """Names are given once: what a caller knows of a tab that is gone never means another."""

    def __init__(self, meter: SessionMeter, refusals: Refusals) -> None:
        self._meter = meter
        self._refusals = refusals
        self._tabs: dict[str, TabPage] = {}
        self.active = ""
        self.given = 0

    def __len__(self) -> int:
        return len(self._tabs)

    def __contains__(self, tab: str) -> bool:
        return tab in self._tabs

    def all(self) -> tuple[TabPage, ...]:
        return tuple(self._tabs.values())

    def since(self, given: int) -> tuple[TabPage, ...]:
        """Those that came after so many had been given."""
        return tuple(tab for tab in self._tabs.values() if int(tab.tab[1:]) > given)

    def find(self, tab: str) -> TabPage:
        """By its name; without one, the active tab."""
        found = self._tabs.get(tab or self.active)
        if found is None:
            raise UnknownTab(f"there is no tab {tab[:32]!r}", tabs=list(self._tabs))
        return found

    def require_room(self) -> None:
        if len(self._tabs) >= self._meter.budget.max_tabs_per_session:
            raise BudgetSpent(f"the session has {len(self._tabs)} tabs", hint="close a tab first")

    def came(self, make: Callable[[str], TabPage]) -> TabPage | None:
        """None, and recorded as refused, where there is no room."""
        try:
            self._meter.open_tab()
        except BudgetSpent as spent:
            self._refusals.add("popup", spent)
            return None
        self.given += 1
        tab = make(f"t{self.given}")
        self._tabs[tab.tab] = tab
        self.active = self.active or tab.tab
        return tab

    def went(self, tab: TabPage) -> None:
        """The active one is then its opener, or the newest."""
        if self._tabs.pop(tab.tab, None) is None:
            return
        self._meter.close_tab()
        if self.active == tab.tab:
            self.active = tab.opener if tab.opener in self._tabs else next(reversed(self._tabs), "")
