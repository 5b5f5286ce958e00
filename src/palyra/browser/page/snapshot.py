"""Observations of a tab in three forms, and its pictures."""

import asyncio
import base64
import re
from typing import Any, Final

import msgspec

from palyra.browser.domain import limits, page_tree
from palyra.browser.domain.action import (
    ChromiumObserveSnapshot,
    Made,
    ObserveAsk,
    PictureFormat,
    Screenshot,
    SnapshotForm,
)
from palyra.browser.domain.cdp_messages import CommandRefused
from palyra.browser.domain.document_state import FrameView
from palyra.browser.domain.limits import MAX_PICTURE_PIXELS
from palyra.browser.domain.page_errors import DocumentGone, ElementHidden
from palyra.browser.domain.page_tree import Bound, Key, cut_bytes, render
from palyra.browser.page.guarded_input import ElementInput, Needs
from palyra.browser.page.locator import Located, PageTools, Point

_MAX_QUALITY = 100
_NOT_DRAWN: Final = "Unable to capture screenshot"


class PagePictures:
    def __init__(self, tools: PageTools, gate: ElementInput) -> None:
        self._page, self._frames, self._worlds, self._finder = tools.page, tools.frames, tools.worlds, tools.finder
        self._gate = gate

    async def take(self, action: Screenshot, located: Located | None, deadline: float, seconds: float) -> Made:
        params: dict[str, Any] = {"format": action.format.value, "fromSurface": True, "optimizeForSpeed": True}
        if action.format is not PictureFormat.PNG:
            params["quality"] = max(0, min(action.quality, _MAX_QUALITY))
        if located is not None:
            params["clip"] = await self._clip(located, deadline)
        elif action.full_page:
            size = await self._worlds.call(self._frames.main, "pageSize")
            params["captureBeyondViewport"] = True
            params["clip"] = {
                "x": 0,
                "y": 0,
                "width": min(size["width"], MAX_PICTURE_PIXELS),
                "height": min(size["height"], MAX_PICTURE_PIXELS),
                "scale": 1,
            }
        taken = await self._capture(params, deadline, seconds)
        return Made(content=base64.b64decode(taken["data"]), media_type=f"image/{action.format.value}")

    async def _capture(self, params: dict[str, Any], deadline: float, seconds: float) -> dict[str, Any]:
        """Repeat the command with each frame: Chromium refuses a page of which nothing was drawn yet."""
        while True:
            try:
                return await self._page.cdp.send("Page.captureScreenshot", params, self._page.session_id, seconds)
            except CommandRefused as refused:
                late = asyncio.get_running_loop().time() >= deadline
                if late or _NOT_DRAWN not in refused.message:
                    raise
            await self._worlds.call(self._frames.main, "nextFrame")

    async def _clip(self, located: Located, deadline: float) -> dict[str, float]:
        """Return the element's box in the page's own pixels, so that the part that is scrolled away counts too."""
        await self._frames.show(located.frame)
        await self._gate.ready(located, Needs(enabled=False), deadline)
        await self._worlds.call(located.frame, "showElement", located.bound.number)
        box = await self._worlds.call(located.frame, "boxNow", located.bound.number)
        if box is None:
            raise ElementHidden(f"{self._finder.name(located)} is not drawn any more", ref=located.ref)
        at = await self._frames.place(located.frame, Point(box["x"], box["y"]))
        size = await self._worlds.call(self._frames.main, "pageSize")
        return {
            "x": at.x + size["left"],
            "y": at.y + size["top"],
            "width": max(1.0, min(box["width"], MAX_PICTURE_PIXELS)),
            "height": max(1.0, min(box["height"], MAX_PICTURE_PIXELS)),
            "scale": 1,
        }


# The place of a frame's own text. The page's script writes the number of the element that holds the frame.
_FRAME_PLACE: Final = re.compile("\0([0-9]+)\0")
_CUT: Final = "\n… cut here: look within a ref, or raise max_bytes"
_READ: Final = {SnapshotForm.TEXT: "visibleText", SnapshotForm.DOM: "markup"}


class _Read(msgspec.Struct):
    """The content of each frame. Inner ones are found by their parent frame and their element's number there."""

    main: Any
    inner: dict[tuple[str, int], tuple[FrameView, Any]]
    frame: FrameView


class PageReader:
    def __init__(self, tools: PageTools) -> None:
        self._page, self._frames, self._worlds, self._finder = tools.page, tools.frames, tools.worlds, tools.finder
        self._refs, self._redact = tools.refs, tools.redact
        self._last: frozenset[Key] | None = None

    async def observe(self, ask: ObserveAsk, max_bytes: int, text_bytes: int) -> ChromiumObserveSnapshot:
        within = await self._finder.find(ask.within) if ask.within is not None else None
        if ask.form is SnapshotForm.TREE:
            return await self._tree(ask, within, min(ask.max_bytes or limits.DEFAULT_TREE_BYTES, max_bytes))
        ceiling = min(text_bytes, max_bytes) if ask.form is SnapshotForm.TEXT else max_bytes
        return await self._flat(ask, within, min(ask.max_bytes or ceiling, ceiling))

    async def _tree(self, ask: ObserveAsk, within: Located | None, room: int) -> ChromiumObserveSnapshot:
        bounds = {"rows": limits.MAX_ROWS, "milliseconds": limits.MAX_WALK_MS, "names": bool(ask.find)}
        read = await self._read("snapshot", within, bounds)
        roots = page_tree.grow(read.main["rows"], read.frame.frame_id, read.frame.loader_id, self._redact)
        inner = {
            place: page_tree.grow(given["rows"], frame.frame_id, frame.loader_id, self._redact)
            for place, (frame, given) in read.inner.items()
        }
        page_tree.graft(roots, inner)
        left = int(read.main["left"]) + sum(int(given["left"]) for _, given in read.inner.values())
        nodes = page_tree.tidy(roots)
        before = self._last if ask.since_last else None
        matches = 0
        if ask.find:
            nodes, matches = page_tree.found(nodes, ask.find)
        if ask.interactive_only:
            nodes = page_tree.only_interactive(nodes)
        whole = nodes
        if ask.depth:
            nodes = page_tree.cut_depth(nodes, ask.depth)
        drawn = render(nodes, self._bind, room, before=before, left_out=left)
        if within is None and not (ask.find or ask.interactive_only):
            self._last = frozenset(each.key for node in whole for each in node.walk())
        return self._answer(ask, drawn.text, drawn.truncated, refs=drawn.refs, matches=matches, read=read)

    async def _flat(self, ask: ObserveAsk, within: Located | None, room: int) -> ChromiumObserveSnapshot:
        read = await self._read(_READ[ask.form], within, room + limits.READ_BEYOND_CHARS)
        frame_texts = {place: (frame, str(given["text"])) for place, (frame, given) in read.inner.items()}

        def filled(frame: FrameView, text: str, depth: int) -> str:
            def put(match: re.Match[str]) -> str:
                inner = frame_texts.get((frame.frame_id, int(match[1])))
                return filled(*inner, depth + 1) if inner is not None and depth < limits.MAX_FRAMES else ""

            return _FRAME_PLACE.sub(put, text)

        whole = self._redact(_lines(filled(read.frame, str(read.main["text"]), 0)))
        matches = 0
        if ask.find:
            wanted = ask.find.casefold()
            hits = [line for line in whole.split("\n") if wanted in line.casefold()]
            matches, whole = len(hits), "\n".join(hits)
        left = int(read.main["left"]) + sum(int(given["left"]) for _, given in read.inner.values())
        text, cut = cut_bytes(whole + (_CUT if left else ""), room, _CUT)
        return self._answer(ask, text, cut or left > 0, matches=matches, read=read)

    async def _read(self, called: str, within: Located | None, bounds: Any) -> _Read:
        frame = within.frame if within is not None else self._frames.main
        number = within.bound.number if within is not None else 0
        main = await self._worlds.call(frame, called, number, bounds, seconds=limits.MAX_WALK_MS / 1000)
        if main is None:
            raise DocumentGone("what was to be looked at is not on the page any more")
        owners = await self._frames.owners()
        others = [each for each in self._frames.all()[1:] if each.frame_id in owners and each != frame]
        seconds = limits.MAX_WALK_MS / 1000
        calls = (self._worlds.try_call(each, called, 0, bounds, seconds=seconds) for each in others)
        read = await asyncio.gather(*calls)
        inner = {
            (owners[each.frame_id][0].frame_id, owners[each.frame_id][1]): (each, given)
            for each, given in zip(others, read, strict=True)
            if given is not None
        }
        return _Read(main, inner, frame)

    def _bind(self, node: page_tree.PageNode) -> str:
        bound = Bound(
            frame_id=node.frame_id, loader_id=node.loader_id, number=node.number, role=node.role, name=node.page_name
        )
        return self._refs.bind(bound)

    def _answer(
        self, ask: ObserveAsk, text: str, truncated: bool, *, read: _Read, refs: int = 0, matches: int = 0
    ) -> ChromiumObserveSnapshot:
        main = self._frames.main
        title = read.main.get("title", "") if read.frame.frame_id == main.frame_id else ""
        return ChromiumObserveSnapshot(
            tab=self._page.tab,
            url=self._redact(main.url),
            title=self._redact(str(title)),
            form=ask.form,
            text=text,
            truncated=truncated,
            refs=refs,
            matches=matches,
        )


def _lines(text: str) -> str:
    lines = [" ".join(line.split(" ")).strip() for line in text.split("\n")]
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(line)
    return "\n".join(kept).strip()
