"""Waits for something to be true of a page, told by the page's own changes: nothing is asked at intervals."""

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeVar

from palyra.browser.action import LoadState, WaitFor
from palyra.browser.cdp_codec import CdpEvent
from palyra.browser.element_errors import StaleRef, WaitTimedOut
from palyra.browser.element_finder import ElementFinder
from palyra.browser.page_errors import DialogOpen, DocumentGone
from palyra.browser.page_frames import PageFrames
from palyra.browser.page_port import FrameView, PageView
from palyra.browser.page_script import PageWorlds
from palyra.errors import PalyraError

T = TypeVar("T")

_READY: Final = {LoadState.CONTENT: "interactive", LoadState.LOADED: "complete", LoadState.IDLE: "complete"}


class PageWait:
    def __init__(self, page: PageView, frames: PageFrames, worlds: PageWorlds, finder: ElementFinder) -> None:
        self._page = page
        self._frames = frames
        self._worlds = worlds
        self._finder = finder

    async def until(self, check: Callable[[], Awaitable[T | None]], deadline: float) -> T | None:
        """What ``check`` gives once it gives something; None when the time is over. It is asked again whenever the
        page, one of its frames, or the list of frames changed."""
        changed = asyncio.Event()

        def heard(event: CdpEvent) -> None:
            if event.method.startswith(("Page.", "Target.")):
                changed.set()

        with ExitStack() as listening:
            for session in {each.session_id for each in self._frames.all()}:
                listening.callback(self._page.cdp.subscribe(session, heard))
            try:
                while True:
                    changed.clear()
                    marks = await self._mark()
                    got = await check()
                    if got is not None:
                        return got
                    left = deadline - asyncio.get_running_loop().time()
                    if left <= 0:
                        return None
                    await self._next(marks, changed, left)
            finally:
                await self._stop()

    async def _mark(self) -> list[tuple[FrameView, int]]:
        frames = self._frames.all()
        versions = await asyncio.gather(*(self._quietly(each, "watch") for each in frames))
        return [(frame, int(at)) for frame, at in zip(frames, versions, strict=True) if at is not None]

    async def _next(self, marks: list[tuple[FrameView, int]], changed: asyncio.Event, left: float) -> None:
        waits = [
            *(asyncio.ensure_future(self._quietly(frame, "changeAfter", at, seconds=left)) for frame, at in marks),
            asyncio.ensure_future(changed.wait()),
        ]
        opened = asyncio.ensure_future(self._page.dialog_opened())
        try:
            if self._page.dialog() is None:
                await asyncio.wait((*waits, opened), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if opened.done() or self._page.dialog() is not None:
                raise DialogOpen("a dialog of the page is open: nothing in it changes before that is answered")
        finally:
            for each in (*waits, opened):
                each.cancel()
            await asyncio.gather(*waits, opened, return_exceptions=True)

    async def _quietly(self, frame: FrameView, called: str, *given: Any, seconds: float = 0.0) -> Any:
        """A document that went away is a change too."""
        with suppress(DocumentGone):
            return await self._worlds.call(frame, called, *given, seconds=seconds)
        return None

    async def _stop(self) -> None:
        if self._page.dialog() is None:
            with suppress(PalyraError):
                await asyncio.gather(*(self._quietly(each, "unwatch") for each in self._frames.all()))

    # What an agent waits for.

    async def wait_for(self, action: WaitFor, deadline: float) -> None:
        missing = ["nothing was looked at yet"]

        async def holds() -> bool | None:
            missing[:] = await self._missing(action)
            return None if missing else True

        if action.state is LoadState.IDLE:
            await self._idle(deadline)
        if await self.until(holds, deadline) is None:
            raise WaitTimedOut(f"waited in vain: {'; '.join(missing)}")

    async def _missing(self, action: WaitFor) -> list[str]:
        """What does not hold yet, in words."""
        lacking = []
        if action.target is not None and await self._target_there(action) is action.gone:
            lacking.append("the element is still there" if action.gone else "the element is not there")
        if action.text and await self._text_there(action.text) is action.gone:
            lacking.append("the text is still there" if action.gone else "the text is not there")
        if action.url and not _url_matches(self._frames.main.url, action.url):
            lacking.append("the address is another")
        if action.state in _READY and not await self._quietly(self._frames.main, "loaded", _READY[action.state]):
            lacking.append("the page is still loading")
        return lacking

    async def _target_there(self, action: WaitFor) -> bool:
        assert action.target is not None
        if action.target.ref is None:
            found = await self._finder.matching(action.target)
            return any([await self._seen(each.frame, each.bound.number) for each in found])
        try:
            located = await self._finder.find(action.target)
        except (StaleRef, DocumentGone):
            if action.gone:
                return False
            raise
        return await self._seen(located.frame, located.bound.number)

    async def _seen(self, frame: FrameView, number: int) -> bool:
        told = await self._quietly(frame, "tell", number)
        return told is not None and not told["hidden"]

    async def _text_there(self, text: str) -> bool:
        return any(await asyncio.gather(*(self._quietly(each, "textShown", text) for each in self._frames.all())))

    async def _idle(self, deadline: float) -> None:
        """Chromium tells when nothing was loaded for half a second, and tells it again to whoever asks later."""
        idle = asyncio.Event()

        def heard(event: CdpEvent) -> None:
            if event.method == "Page.lifecycleEvent" and event.params.get("name") == "networkIdle":
                main = self._frames.main
                if event.params.get("frameId") == main.frame_id and event.params.get("loaderId") == main.loader_id:
                    idle.set()

        stop = self._page.cdp.subscribe(self._page.session_id, heard)
        try:
            await self._page.cdp.send("Page.setLifecycleEventsEnabled", {"enabled": True}, self._page.session_id)
            async with asyncio.timeout_at(deadline):
                await idle.wait()
        except TimeoutError as late:
            raise WaitTimedOut("the page never came to rest") from late
        finally:
            stop()


def _url_matches(url: str, wanted: str) -> bool:
    """The whole address, a part of it, or a pattern with stars."""
    return fnmatch.fnmatchcase(url, wanted) if "*" in wanted else wanted in url
