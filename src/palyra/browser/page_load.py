"""How far the document of a tab has come, told by Chromium's events about the main frame. Pure.

A navigation is asked for by the page, then started (it has a loader from then on), then it commits or stops. A loader
that committed goes on to its content, its load, and to a network at rest.
"""

from typing import Final

from palyra.browser.action import LoadState

_REACHED: Final = {
    "DOMContentLoaded": LoadState.CONTENT,
    "load": LoadState.LOADED,
    "networkIdle": LoadState.IDLE,
}
_ORDER: Final = (LoadState.COMMITTED, LoadState.CONTENT, LoadState.LOADED, LoadState.IDLE)


class PageLoad:
    """``commits`` and ``ends`` only grow, so that whoever waits can tell what happened since."""

    def __init__(self) -> None:
        self.loader = ""
        # The loader of a navigation that is under way.
        self.pending = ""
        # The page asked for one that has not started yet.
        self.requested = False
        self.commits = 0
        self.starts = 0
        self.ends = 0
        self.within = 0
        self.status = 0
        self._statuses: dict[str, int] = {}
        self._reached: set[LoadState] = {LoadState.COMMITTED}
        self._early: dict[str, set[LoadState]] = {}

    @property
    def busy(self) -> bool:
        """A navigation is under way, or the document that is shown is not loaded yet."""
        return bool(self.pending) or self.requested or LoadState.LOADED not in self._reached

    @property
    def moving(self) -> bool:
        return bool(self.pending) or self.requested

    def begun(self, loader: str) -> None:
        """At the start: the blank document that is there already."""
        self.loader = loader
        self._reached = set(_ORDER)

    def has_reached(self, state: LoadState) -> bool:
        wanted = _ORDER.index(state)
        return any(_ORDER.index(each) >= wanted for each in self._reached)

    def asked(self) -> None:
        self.requested = True

    def started(self, loader: str, kind: str) -> None:
        self.requested = False
        if "sameDocument" in kind or "SameDocument" in kind:
            return
        self.starts += 1
        self.pending = loader

    def answered(self, loader: str, status: int) -> None:
        """The document's HTTP status, which comes before it commits."""
        if loader == self.loader:
            self.status = status
        else:
            self._statuses = {loader: status}

    def committed(self, loader: str, *, restored: bool) -> None:
        """``restored``: it was kept whole, and comes back as it was."""
        self.commits += 1
        self.requested = False
        self.pending = ""
        self.loader = loader
        self.status = self._statuses.pop(loader, 0)
        self._reached = {LoadState.COMMITTED} | self._early.pop(loader, set())
        self._early.clear()
        if restored:
            self._reached |= set(_ORDER)

    def moved_within(self) -> None:
        self.within += 1
        self.requested = False

    def reached(self, loader: str, name: str) -> None:
        state = _REACHED.get(name)
        if state is None:
            return
        if loader == self.loader:
            self._reached.add(state)
        elif loader == self.pending:
            self._early.setdefault(loader, set()).add(state)

    def stopped(self) -> None:
        """Nothing loads in the main frame any more: what was under way has committed, or never will."""
        if self.moving:
            self.ends += 1
        self.requested = False
        self.pending = ""
        self._reached.add(LoadState.LOADED)

    def abandoned(self) -> None:
        """A person or a page has called it off, or the process died."""
        self.stopped()
