"""Observation and input of one tab, joined, and waiting for conditions of its page."""

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Final, TypeVar

from palyra.browser.domain import action as does
from palyra.browser.domain.action import (
    BadAction,
    ChromiumObserveSnapshot,
    ElementAction,
    ElementTarget,
    LoadState,
    Made,
    ObserveAsk,
)
from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.document_state import FrameView
from palyra.browser.domain.page_address import Redact
from palyra.browser.domain.page_errors import (
    DialogOpen,
    DocumentGone,
    NotFileInput,
    NotSelectable,
    StaleRef,
    WaitTimedOut,
)
from palyra.browser.domain.page_tree import RefCounter, RefRegistry
from palyra.browser.engine.browser_folders import UploadFolder
from palyra.browser.page.guarded_input import ElementInput, Needs
from palyra.browser.page.in_page_script import PageScript, PageView
from palyra.browser.page.locator import Located, PageTools
from palyra.browser.page.mouse_keyboard import MouseActions, TextInput
from palyra.browser.page.snapshot import PagePictures, PageReader
from palyra.errors import PalyraError

T = TypeVar("T")

_READY: Final = {LoadState.CONTENT: "interactive", LoadState.LOADED: "complete", LoadState.IDLE: "complete"}


class PageWait:
    def __init__(self, tools: PageTools) -> None:
        self._page, self._frames, self._worlds, self._finder = tools.page, tools.frames, tools.worlds, tools.finder

    async def until(self, check: Callable[[], Awaitable[T | None]], deadline: float) -> T | None:
        """Return the first result of ``check`` that is not None, or None when the time is over. Nothing is polled."""
        changed = asyncio.Event()

        def on_event(event: CdpEvent) -> None:
            if event.method.startswith(("Page.", "Target.")):
                changed.set()

        with ExitStack() as listening:
            for session in {each.session_id for each in self._frames.all()}:
                listening.callback(self._page.cdp.subscribe(session, on_event))
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
        versions = await asyncio.gather(*(self._worlds.try_call(each, "watch") for each in frames))
        return [(frame, int(at)) for frame, at in zip(frames, versions, strict=True) if at is not None]

    async def _next(self, marks: list[tuple[FrameView, int]], changed: asyncio.Event, left: float) -> None:
        waits = [
            *(
                asyncio.ensure_future(self._worlds.try_call(frame, "changeAfter", at, seconds=left))
                for frame, at in marks
            ),
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

    async def _stop(self) -> None:
        if self._page.dialog() is None:
            with suppress(PalyraError):
                await asyncio.gather(*(self._worlds.try_call(each, "unwatch") for each in self._frames.all()))

    async def wait_for(self, action: does.WaitFor, deadline: float) -> None:
        missing = ["nothing was checked yet"]

        async def holds() -> bool | None:
            missing[:] = await self._missing(action)
            return None if missing else True

        if action.state is LoadState.IDLE:
            await self._idle(deadline)
        if await self.until(holds, deadline) is None:
            raise WaitTimedOut(f"waited in vain: {'; '.join(missing)}")

    async def _missing(self, action: does.WaitFor) -> list[str]:
        lacking = []
        if action.target is not None and await self._target_there(action) is action.gone:
            lacking.append("the element is still there" if action.gone else "the element is not there")
        if action.text and await self._text_there(action.text) is action.gone:
            lacking.append("the text is still there" if action.gone else "the text is not there")
        if action.url and not _url_matches(self._frames.main.url, action.url):
            lacking.append("the address is another")
        if action.state in _READY and not await self._worlds.try_call(
            self._frames.main, "loaded", _READY[action.state]
        ):
            lacking.append("the page is still loading")
        return lacking

    async def _target_there(self, action: does.WaitFor) -> bool:
        assert action.target is not None
        if action.target.ref is None:
            found = await self._finder.find_all(action.target)
            return any([await self._seen(each.frame, each.bound.number) for each in found])
        try:
            located = await self._finder.find(action.target)
        except (StaleRef, DocumentGone):
            if action.gone:
                return False
            raise
        return await self._seen(located.frame, located.bound.number)

    async def _seen(self, frame: FrameView, number: int) -> bool:
        state = await self._worlds.try_call(frame, "tell", number)
        return state is not None and not state["hidden"]

    async def _text_there(self, text: str) -> bool:
        return any(
            await asyncio.gather(*(self._worlds.try_call(each, "textShown", text) for each in self._frames.all()))
        )

    async def _idle(self, deadline: float) -> None:
        """Wait until nothing was loaded for half a second. Chromium reports that again to late subscribers."""
        idle = asyncio.Event()

        def on_event(event: CdpEvent) -> None:
            if event.method == "Page.lifecycleEvent" and event.params.get("name") == "networkIdle":
                main = self._frames.main
                if event.params.get("frameId") == main.frame_id and event.params.get("loaderId") == main.loader_id:
                    idle.set()

        stop = self._page.cdp.subscribe(self._page.session_id, on_event)
        try:
            await self._page.cdp.send("Page.setLifecycleEventsEnabled", {"enabled": True}, self._page.session_id)
            async with asyncio.timeout_at(deadline):
                await idle.wait()
        except TimeoutError as late:
            raise WaitTimedOut("the page never came to rest") from late
        finally:
            stop()


def _url_matches(url: str, wanted: str) -> bool:
    return fnmatch.fnmatchcase(url, wanted) if "*" in wanted else wanted in url


class ElementActor:
    """The actor of one tab. All tabs of a session share ``counter`` and ``script``."""

    def __init__(
        self, page: PageView, counter: RefCounter, script: PageScript, uploads: UploadFolder, redact: Redact
    ) -> None:
        self._page = page
        self._uploads = uploads
        self._redact = redact
        self.refs = RefRegistry(counter)
        tools = PageTools(page, self.refs, script, redact)
        self._worlds, self._finder = tools.worlds, tools.finder
        self._reader = PageReader(tools)
        self._gate = ElementInput(tools)
        self._mouse = MouseActions(tools, self._gate)
        self._text = TextInput(tools, self._gate)
        self._wait = PageWait(tools)
        self._pictures = PagePictures(tools, self._gate)

    async def observe(self, ask: ObserveAsk, max_bytes: int, text_bytes: int) -> ChromiumObserveSnapshot:
        self._refuse_dialog()
        return await self._reader.observe(ask, max_bytes, text_bytes)

    async def perform(self, action: ElementAction, timeout: float) -> Made:  # noqa: ASYNC109
        self._refuse_dialog()
        await self._gate.clear()
        deadline = asyncio.get_running_loop().time() + timeout
        match action:
            case does.WaitFor():
                await self._wait.wait_for(action, deadline)
                return Made()
            case does.Screenshot():
                located = await self._locate(action.target, deadline)
                return await self._pictures.take(action, located, deadline, timeout)
            case _:
                await self._act(action, deadline)
        if self._page.dialog() is None:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await self._page.settle(left, answered=self._gate.has_answered())
        return Made()

    async def _act(self, action: ElementAction, deadline: float) -> None:
        located = await self._locate(action.target, deadline)
        match action:
            case does.Press():
                await self._text.press(action, located, deadline)
            case does.Scroll():
                await self._mouse.scroll(action, located, deadline)
            case _ if located is None:
                raise BadAction("this action needs an element")
            case does.Click() | does.DoubleClick():
                await self._mouse.click(action, located, deadline)
            case does.Hover():
                await self._mouse.hover(located, deadline)
            case does.Drag():
                to = await self._locate(action.to, deadline)
                assert to is not None
                await self._mouse.drag(located, to, deadline)
            case does.Type():
                await self._text.type(action, located, deadline)
            case does.Select():
                await self._select(action, located, deadline)
            case does.SetFileInput():
                await self._set_files(action, located, deadline)
            case _:
                raise BadAction("this action is not one on an element")

    async def _locate(self, target: ElementTarget | None, deadline: float) -> Located | None:
        """Find an element. A ref is there at once; an element for a selector may appear later."""
        if target is None:
            return None
        if target.ref is not None:
            return self._finder.by_ref(target.ref)
        matched = await self._finder.find_all(target)
        if not matched:

            async def there() -> list[Located] | None:
                return await self._finder.find_all(target) or None

            matched = await self._wait.until(there, deadline) or []
        return await self._finder.require_one(target, matched)

    async def _select(self, action: does.Select, located: Located, deadline: float) -> None:
        await self._gate.ready(located, Needs(still=False), deadline)
        outcome = await self._worlds.call(located.frame, "choose", located.bound.number, list(action.values))
        match outcome.get("problem"):
            case None:
                return
            case "no option":
                shown = ", ".join(repr(self._redact(each)) for each in outcome["options"])
                raise NotSelectable(f"there is no option {action.values!r}; there are: {shown}", ref=located.ref)
            case "disabled option":
                raise NotSelectable(f"the option {outcome['wanted']!r} is disabled", ref=located.ref)
            case "one option":
                raise NotSelectable(f"{self._finder.name(located)} takes exactly one option", ref=located.ref)
            case _:
                raise NotSelectable(f"{self._finder.name(located)} is no native select", ref=located.ref)

    async def _set_files(self, action: does.SetFileInput, located: Located, deadline: float) -> None:
        """Set files on an input. It is often hidden behind a better-looking button, so it need not be visible."""
        await self._gate.ready(located, Needs(seen=False, still=False), deadline)
        handle = await self._worlds.handle(located.frame, "fileField", located.bound.number)
        if not handle:
            raise NotFileInput(f"{self._finder.name(located)} takes no files", ref=located.ref)
        paths = await self._uploads.put(action.files)
        params = {"files": paths, "objectId": handle}
        await self._page.cdp.send("DOM.setFileInputFiles", params, located.frame.session_id)

    def _refuse_dialog(self) -> None:
        dialog = self._page.dialog()
        if dialog is not None:
            message = self._redact(dialog.message)[:200]
            raise DialogOpen(f"a dialog waits for an answer: {dialog.kind} {message!r}", kind=dialog.kind)
