"""The frames of one tab, and how far its document has loaded, kept from Chromium's events.

A frame of another site lives in a process and a CDP session of its own. The session that it left reports it as
detached with the reason ``swap``, and the session that it came to reports it as navigated.
"""

from typing import Any, Final

import msgspec

from palyra.browser.domain.action import LoadState

# More than any honest page has. Further frames are ignored.
MAX_FRAMES: Final = 1_000
_MAX_URL_CHARS: Final = 8_192


class FrameView(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of a tab. Another document in the same frame has another ``loader_id``.

    ``session_id`` is the frame's CDP session: a frame of another site may live in a process, and a session, of
    its own.
    """

    frame_id: str
    loader_id: str
    session_id: str
    url: str
    parent_id: str = ""


class FrameTable:
    def __init__(self, main_id: str, session_id: str) -> None:
        self.main_id = main_id
        self._frames: dict[str, FrameView] = {
            main_id: FrameView(frame_id=main_id, loader_id="", session_id=session_id, url="about:blank")
        }
        self._moved = False

    @property
    def main(self) -> FrameView:
        return self._frames[self.main_id]

    def get(self, frame_id: str) -> FrameView | None:
        return self._frames.get(frame_id)

    def views(self) -> tuple[FrameView, ...]:
        """Return the main frame first, then parents before children. A frame with an unknown parent is left out."""
        children: dict[str, list[FrameView]] = {}
        for frame in self._frames.values():
            children.setdefault(frame.parent_id, []).append(frame)
        ordered: list[FrameView] = [self.main]
        for frame in ordered:
            ordered += children.get(frame.frame_id, ())
        return tuple(ordered)

    def seed(self, tree: dict[str, Any], session_id: str) -> None:
        """Add the frames that a session reports when it is attached. Later events take precedence."""
        frame = tree["frame"]
        if frame["id"] == self.main_id:
            if self._moved:
                return
            self._put(frame, session_id, self.main.parent_id)
        elif frame["id"] not in self._frames:
            self._put(frame, session_id, str(frame.get("parentId", "")))
        elif not self._frames[frame["id"]].loader_id:
            self._put(frame, session_id, self._frames[frame["id"]].parent_id)
        for child in tree.get("childFrames", ()):
            self.seed(child, session_id)

    def attach(self, frame_id: str, parent_id: str, session_id: str) -> None:
        if frame_id not in self._frames:
            self.adopt(frame_id, parent_id, session_id)

    def adopt(self, frame_id: str, parent_id: str, session_id: str) -> None:
        known = self._frames.get(frame_id)
        if known is not None:
            parent_id = parent_id or known.parent_id
        elif len(self._frames) >= MAX_FRAMES:
            return
        self._frames[frame_id] = FrameView(
            frame_id=frame_id, loader_id="", session_id=session_id, url="", parent_id=parent_id
        )

    def navigate(self, frame: dict[str, Any], session_id: str) -> FrameView | None:
        frame_id = str(frame["id"])
        known = self._frames.get(frame_id)
        if known is None and len(self._frames) >= MAX_FRAMES:
            return None
        self._moved = self._moved or frame_id == self.main_id
        parent = known.parent_id if known is not None and known.parent_id else str(frame.get("parentId", ""))
        for child in [each.frame_id for each in self._frames.values() if each.parent_id == frame_id]:
            self._remove(child)
        return self._put(frame, session_id, parent)

    def move_within(self, frame_id: str, url: str) -> None:
        known = self._frames.get(frame_id)
        if known is not None:
            self._frames[frame_id] = msgspec.structs.replace(known, url=url[:_MAX_URL_CHARS])

    def detach(self, frame_id: str, reason: str) -> None:
        if reason != "swap" and frame_id != self.main_id:
            self._remove(frame_id)

    def remove_session(self, session_id: str) -> None:
        for frame_id in [each.frame_id for each in self._frames.values() if each.session_id == session_id]:
            if frame_id != self.main_id:
                self._remove(frame_id)

    def _put(self, frame: dict[str, Any], session_id: str, parent_id: str) -> FrameView:
        frame_id = str(frame["id"])
        url = str(frame.get("url", "")) + str(frame.get("urlFragment", ""))
        view = FrameView(
            frame_id=frame_id,
            loader_id=str(frame.get("loaderId", "")),
            session_id=session_id,
            url=url[:_MAX_URL_CHARS],
            parent_id=parent_id if frame_id != self.main_id else "",
        )
        self._frames[frame_id] = view
        return view

    def _remove(self, frame_id: str) -> None:
        doomed = [frame_id]
        for each in doomed:
            doomed += [frame.frame_id for frame in self._frames.values() if frame.parent_id == each]
            self._frames.pop(each, None)


# The loading state of a tab's document, from Chromium's events about the main frame.
#
# A page requests a navigation, then it starts (with a loader from then on), then it commits or stops. A loader that
# committed goes on to its content, its load, and to a network at rest.

_REACHED: Final = {
    "DOMContentLoaded": LoadState.CONTENT,
    "load": LoadState.LOADED,
    "networkIdle": LoadState.IDLE,
}
_ORDER: Final = (LoadState.COMMITTED, LoadState.CONTENT, LoadState.LOADED, LoadState.IDLE)


class PageLoad:
    """``commits`` and ``ends`` only grow, so that a waiting task sees what happened since it began to wait."""

    def __init__(self) -> None:
        self.loader = ""
        # The loader of the navigation that is under way.
        self.pending = ""
        # The page requested a navigation that has not started yet.
        self.requested = False
        self.commits = 0
        self.ends = 0
        self.within = 0
        self.status = 0
        self._statuses: dict[str, int] = {}
        self._reached: set[LoadState] = {LoadState.COMMITTED}
        self._early: dict[str, set[LoadState]] = {}

    @property
    def busy(self) -> bool:
        return bool(self.pending) or self.requested or LoadState.LOADED not in self._reached

    @property
    def moving(self) -> bool:
        return bool(self.pending) or self.requested

    def begin(self, loader: str) -> None:
        self.loader = loader
        self._reached = set(_ORDER)

    def has_reached(self, state: LoadState) -> bool:
        wanted = _ORDER.index(state)
        return any(_ORDER.index(each) >= wanted for each in self._reached)

    def request(self) -> None:
        self.requested = True

    def start(self, loader: str, kind: str) -> None:
        self.requested = False
        if "sameDocument" in kind or "SameDocument" in kind:
            return
        self.pending = loader

    def record_answer(self, loader: str, status: int) -> None:
        if loader == self.loader:
            self.status = status
        else:
            self._statuses = {loader: status}

    def commit(self, loader: str, *, restored: bool) -> None:
        """Show another document. ``restored``: it was kept whole and comes back complete."""
        self.commits += 1
        self.requested = False
        self.pending = ""
        self.loader = loader
        self.status = self._statuses.pop(loader, 0)
        self._reached = {LoadState.COMMITTED} | self._early.pop(loader, set())
        self._early.clear()
        if restored:
            self._reached |= set(_ORDER)

    def move_within(self) -> None:
        self.within += 1
        self.requested = False

    def reach(self, loader: str, name: str) -> None:
        state = _REACHED.get(name)
        if state is None:
            return
        if loader == self.loader:
            self._reached.add(state)
        elif loader == self.pending:
            self._early.setdefault(loader, set()).add(state)

    def stop(self) -> None:
        if self.moving:
            self.ends += 1
        self.requested = False
        self.pending = ""
        self._reached.add(LoadState.LOADED)

    def abandon(self) -> None:
        self.stop()
