"""Observation and input of one tab, joined: what a session asks of the page layer, and what its refs mean."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from palyra.browser.action import (
    BadAction,
    Click,
    DoubleClick,
    Drag,
    ElementAction,
    ElementTarget,
    Hover,
    Press,
    Screenshot,
    Scroll,
    Select,
    SetFileInput,
    Type,
    Upload,
    WaitFor,
)
from palyra.browser.element_errors import NotFileInput, NotSelectable
from palyra.browser.element_finder import ElementFinder, Located
from palyra.browser.element_input import ElementInput, Needs
from palyra.browser.mouse_actions import MouseActions
from palyra.browser.observation import ChromiumObserveSnapshot, ObserveAsk
from palyra.browser.page_errors import DialogOpen
from palyra.browser.page_frames import PageFrames
from palyra.browser.page_pictures import PagePictures
from palyra.browser.page_port import Made, PageView, Redact
from palyra.browser.page_reader import PageReader
from palyra.browser.page_script import PageScript, PageWorlds
from palyra.browser.page_wait import PageWait
from palyra.browser.refs import RefBook, RefCounter
from palyra.browser.text_input import TextInput


class Uploads(Protocol):
    """`upload_folder.UploadFolder` is it."""

    async def put(self, uploads: Sequence[Upload]) -> list[str]: ...


class ElementActor:
    """The `PageActor` of one tab. ``counter`` and ``script`` are the session's: shared by all of its tabs."""

    def __init__(
        self, page: PageView, counter: RefCounter, script: PageScript, uploads: Uploads, redact: Redact
    ) -> None:
        self._page = page
        self._uploads = uploads
        self._redact = redact
        self.refs = RefBook(counter)
        self._worlds = PageWorlds(page, script, redact)
        self._frames = PageFrames(page, self._worlds)
        self._finder = ElementFinder(self._frames, self._worlds, self.refs, redact)
        self._reader = PageReader(page, self._frames, self._worlds, self._finder, self.refs, redact)
        self._gate = ElementInput(page, self._frames, self._worlds, self._finder)
        self._mouse = MouseActions(page, self._frames, self._worlds, self._finder, self._gate)
        self._text = TextInput(self._worlds, self._finder, self._gate)
        self._wait = PageWait(page, self._frames, self._worlds, self._finder)
        self._pictures = PagePictures(page, self._frames, self._worlds, self._finder, self._gate)

    async def observe(self, ask: ObserveAsk, max_bytes: int, text_bytes: int) -> ChromiumObserveSnapshot:
        self._refuse_dialog()
        return await self._reader.observe(ask, max_bytes, text_bytes)

    async def perform(self, action: ElementAction, timeout: float) -> Made:  # noqa: ASYNC109
        """Waits at most that long for the element to be there and ready, and then for what was set going."""
        self._refuse_dialog()
        await self._gate.clear()
        deadline = asyncio.get_running_loop().time() + timeout
        match action:
            case WaitFor():
                await self._wait.wait_for(action, deadline)
                return Made()
            case Screenshot():
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
            case Press():
                await self._text.press(action, located, deadline)
            case Scroll():
                await self._mouse.scroll(action, located, deadline)
            case _ if located is None:
                raise BadAction("this action needs an element")
            case Click() | DoubleClick():
                await self._mouse.click(action, located, deadline)
            case Hover():
                await self._mouse.hover(located, deadline)
            case Drag():
                to = await self._locate(action.to, deadline)
                assert to is not None
                await self._mouse.drag(located, to, deadline)
            case Type():
                await self._text.type(action, located, deadline)
            case Select():
                await self._select(action, located, deadline)
            case SetFileInput():
                await self._set_files(action, located, deadline)
            case _:
                raise BadAction("this action is not one on an element")

    async def _locate(self, target: ElementTarget | None, deadline: float) -> Located | None:
        """A ref is what it is at once; what a selector describes may come a little later."""
        if target is None:
            return None
        if target.ref is not None:
            return self._finder.by_ref(target.ref)
        matched = await self._finder.matching(target)
        if not matched:

            async def there() -> list[Located] | None:
                return await self._finder.matching(target) or None

            matched = await self._wait.until(there, deadline) or []
        return await self._finder.the_one(target, matched)

    async def _select(self, action: Select, located: Located, deadline: float) -> None:
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

    async def _set_files(self, action: SetFileInput, located: Located, deadline: float) -> None:
        """A file input is often hidden behind a button that looks better, so it need not be seen."""
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
