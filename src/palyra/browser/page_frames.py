"""The frames of a tab as a tree of places: which element holds each, and where a point of one lies in the window."""

import asyncio
from typing import Any

import msgspec

from palyra.browser.page_errors import DocumentGone
from palyra.browser.page_limits import MAX_FRAMES
from palyra.browser.page_port import FrameView, PageView
from palyra.browser.page_script import PageWorlds
from palyra.errors import PalyraError


class Point(msgspec.Struct, frozen=True):
    """In pixels of the tab's window."""

    x: float
    y: float


class FrameHidden(msgspec.Struct, frozen=True):
    """A frame on the way is not where the point is. ``by`` is what is there instead."""

    frame: FrameView
    by: dict[str, Any] | None


class PageFrames:
    def __init__(self, page: PageView, worlds: PageWorlds) -> None:
        self._page = page
        self._worlds = worlds
        # The number of the element that holds a frame, by the documents of both.
        self._owners: dict[tuple[str, str, str], int] = {}

    def all(self) -> tuple[FrameView, ...]:
        return self._page.frames()[:MAX_FRAMES]

    @property
    def main(self) -> FrameView:
        return self._page.frames()[0]

    def by_id(self, frame_id: str) -> FrameView | None:
        return next((each for each in self._page.frames() if each.frame_id == frame_id), None)

    def parent(self, frame: FrameView) -> FrameView | None:
        return self.by_id(frame.parent_id) if frame.parent_id else None

    def depth(self, frame: FrameView) -> int:
        """How many frames are around it."""
        steps, at = 0, self.parent(frame)
        while at is not None and steps < MAX_FRAMES:
            steps, at = steps + 1, self.parent(at)
        return steps

    async def owner(self, frame: FrameView) -> tuple[FrameView, int] | None:
        """The parent's frame and the number of the element in it that holds this one; None for the main frame."""
        parent = self.parent(frame)
        if parent is None:
            return None
        key = (frame.frame_id, parent.frame_id, parent.loader_id)
        number = self._owners.get(key)
        if number is None:
            number = await self._worlds.number_of_owner(parent, frame)
            if len(self._owners) > MAX_FRAMES * 4:
                self._owners.clear()
            self._owners[key] = number
        return parent, number

    async def owners(self) -> dict[str, tuple[FrameView, int]]:
        """Of every frame but the main one; a frame that goes away while it is looked at has none."""
        frames = self.all()[1:]
        found = await asyncio.gather(*(self.owner(each) for each in frames), return_exceptions=True)
        held: dict[str, tuple[FrameView, int]] = {}
        for frame, owner in zip(frames, found, strict=True):
            if isinstance(owner, BaseException):
                if not isinstance(owner, PalyraError):
                    raise owner
            elif owner is not None:
                held[frame.frame_id] = owner
        return held

    async def in_window(self, frame: FrameView, x: float, y: float) -> Point | FrameHidden:
        """Where a point of a frame is in the tab's window, if every frame around it would be hit there."""
        at = frame
        for _ in range(MAX_FRAMES):
            owner = await self.owner(at)
            if owner is None:
                return Point(x, y)
            parent, number = owner
            hit = await self._worlds.call(parent, "frameHit", number, x, y)
            if "problem" in hit:
                if hit["problem"] == "removed":
                    raise DocumentGone("a frame around the element went away meanwhile")
                return FrameHidden(parent, hit.get("by"))
            x, y, at = hit["x"], hit["y"], parent
        raise DocumentGone("frames are nested too deeply")

    async def place(self, frame: FrameView, point: Point) -> Point:
        """Where a point of a frame is in the tab's window, whether it can be seen there or not."""
        x, y, at = point.x, point.y, frame
        for _ in range(MAX_FRAMES):
            owner = await self.owner(at)
            if owner is None:
                break
            parent, number = owner
            lies = await self._worlds.call(parent, "frameHit", number, x, y)
            x, y, at = lies.get("x", x), lies.get("y", y), parent
        return Point(x, y)

    async def show(self, frame: FrameView, *, if_unseen: bool = False) -> None:
        """Scrolls every frame around into view, from the outermost on."""
        around: list[tuple[FrameView, int]] = []
        at = frame
        while (owner := await self.owner(at)) is not None and len(around) < MAX_FRAMES:
            around.append(owner)
            at = owner[0]
        for parent, number in reversed(around):
            await self._worlds.call(parent, "showFrame", number, if_unseen)
