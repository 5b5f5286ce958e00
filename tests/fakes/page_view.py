"""A tab of a real Chromium for those who look at it and act in it, without a session around it.

Pages are given by address and answered by interception: any number of sites, and no server.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

from fakes.browser_engine import launching
from palyra.browser.domain.action import Dialog
from palyra.browser.domain.cdp_messages import CdpEvent, CommandRefused
from palyra.browser.domain.document_state import FrameView
from palyra.browser.domain.page_errors import DocumentGone
from palyra.browser.domain.page_tree import RefCounter
from palyra.browser.engine.browser_folders import UploadFolder
from palyra.browser.engine.cdp_connection import CdpPipe
from palyra.browser.engine.chromium import ChromiumProcess
from palyra.browser.page.in_page_script import WORLD_NAME, PageScript
from palyra.browser.page.page import ElementActor

HOME = "http://shop.test/"
ROOM = 64 * 1024


class FixtureTab:
    """Implements `PageView`."""

    def __init__(self, process: ChromiumProcess, target: str = "") -> None:
        self.process = process
        self.pages: dict[str, str] = {}
        self.script = PageScript()
        self._target = target or process.first_target
        self._frames: dict[str, FrameView] = {}
        self._worlds: dict[tuple[str, str], int] = {}
        self._dialog: Dialog | None = None
        self._opened = asyncio.Event()
        self._loaded = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stops: list[Any] = []
        self._session = ""

    @property
    def cdp(self) -> CdpPipe:
        return self.process.cdp

    @property
    def tab(self) -> str:
        return "t1"

    @property
    def session_id(self) -> str:
        return self._session

    def frames(self) -> tuple[FrameView, ...]:
        ordered: list[FrameView] = []
        left = list(self._frames.values())
        known = {""}
        while left:
            now = [each for each in left if each.parent_id in known]
            if not now:
                break
            ordered += now
            known |= {each.frame_id for each in now}
            left = [each for each in left if each not in now]
        return tuple(ordered)

    async def world(self, frame: FrameView) -> int:
        if self._frames.get(frame.frame_id) != frame:
            raise DocumentGone("the document is gone")
        key = (frame.frame_id, frame.loader_id)
        if key not in self._worlds:
            params = {"frameId": frame.frame_id, "worldName": WORLD_NAME}
            try:
                made = await self.cdp.send("Page.createIsolatedWorld", params, frame.session_id)
            except CommandRefused as refused:
                raise DocumentGone("the document is gone") from refused
            self._worlds[key] = int(made["executionContextId"])
        return self._worlds[key]

    def dialog(self) -> Dialog | None:
        return self._dialog

    def dialog_opened(self) -> Awaitable[Any]:
        return self._opened.wait()

    async def settle(self, timeout: float, *, answered: bool = False) -> None:
        pass

    # For tests.

    async def open(self) -> None:
        attached = await self.cdp.send("Target.attachToTarget", {"targetId": self._target, "flatten": True})
        self._session = str(attached["sessionId"])
        await self._begin(self._session, "")
        await self.cdp.send("Emulation.setFocusEmulationEnabled", {"enabled": True}, self._session)

    async def close(self) -> None:
        for stop in self._stops:
            stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def show(self, body: str, **others: str) -> None:
        """Loads a page; others are pages of other addresses, for frames and links."""
        self.pages = {HOME: body, **others}
        await self.go(HOME)

    async def go(self, url: str) -> None:
        self._loaded.clear()
        answer = await self.cdp.send("Page.navigate", {"url": url}, self._session, 60.0)
        assert "errorText" not in answer, answer
        async with asyncio.timeout(60):
            await self._loaded.wait()

    async def evaluate(self, expression: str) -> Any:
        params = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = await self.cdp.send("Runtime.evaluate", params, self._session, 60.0)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def answer_dialog(self, accept: bool = True) -> None:
        await self.cdp.send("Page.handleJavaScriptDialog", {"accept": accept}, self._session)

    # Events.

    async def _begin(self, session: str, parent_id: str) -> None:
        def on_event(event: CdpEvent) -> None:
            self._on_event(session, parent_id, event)

        self._stops.append(self.cdp.subscribe(session, on_event))
        send = self.cdp.send
        await send("Page.enable", {}, session)
        await send("Fetch.enable", {"patterns": [{"urlPattern": "http://*"}, {"urlPattern": "https://*"}]}, session)
        attach = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
        await send("Target.setAutoAttach", attach, session)
        await send("Runtime.enable", {}, session)
        for method, params in self.script.setup:
            await send(method, params, session)
        frames = await send("Page.getFrameTree", {}, session)
        self._add_tree(session, parent_id, frames["frameTree"])
        await send("Runtime.runIfWaitingForDebugger", {}, session)

    def _add_tree(self, session: str, parent_id: str, tree: dict[str, Any]) -> None:
        self._add(session, parent_id, tree["frame"])
        for child in tree.get("childFrames", ()):
            self._add_tree(session, tree["frame"]["id"], child)

    def _add(self, session: str, parent_id: str, frame: dict[str, Any]) -> None:
        self._frames[frame["id"]] = FrameView(
            frame_id=frame["id"],
            loader_id=frame["loaderId"],
            session_id=session,
            url=frame["url"],
            parent_id=frame.get("parentId") or parent_id,
        )

    def _on_event(self, session: str, parent_id: str, event: CdpEvent) -> None:
        given = event.params
        match event.method:
            case "Page.frameNavigated":
                known = self._frames.get(given["frame"]["id"])
                self._add(session, known.parent_id if known else parent_id, given["frame"])
            case "Page.navigatedWithinDocument":
                known = self._frames[given["frameId"]]
                frame = {"id": known.frame_id, "loaderId": known.loader_id, "url": given["url"]}
                self._add(session, known.parent_id, frame)
            case "Page.frameDetached" if given.get("reason") != "swap":
                self._frames.pop(given["frameId"], None)
            case "Page.loadEventFired" if session == self._session:
                self._loaded.set()
            case "Page.javascriptDialogOpening":
                self._dialog = Dialog(kind=given["type"], message=given["message"])
                self._opened.set()
            case "Page.javascriptDialogClosed":
                self._dialog = None
                self._opened = asyncio.Event()
            case "Fetch.requestPaused":
                self._do(self._fulfil(session, given))
            case "Target.attachedToTarget":
                info = given["targetInfo"]
                above = self._frames.get(info["targetId"])
                self._do(self._begin(given["sessionId"], above.parent_id if above else info.get("parentFrameId", "")))

    def _do(self, work: Any) -> None:
        async def quietly() -> None:
            with contextlib.suppress(CommandRefused):
                await work

        task = asyncio.create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fulfil(self, session: str, paused: dict[str, Any]) -> None:
        body = self.pages.get(paused["request"]["url"])
        await self.cdp.send(
            "Fetch.fulfillRequest",
            {
                "requestId": paused["requestId"],
                "responseCode": 404 if body is None else 200,
                "responseHeaders": [{"name": "Content-Type", "value": "text/html; charset=utf-8"}],
                "body": base64.b64encode((body or "").encode()).decode(),
            },
            session,
        )


def actor_of(tab: FixtureTab, *secrets: str) -> ElementActor:
    def redact(text: str) -> str:
        for each in secrets:
            text = text.replace(each, "[redacted]")
        return text

    return ElementActor(tab, RefCounter(), tab.script, UploadFolder(tab.process.files), redact)


@contextlib.asynccontextmanager
async def open_tab(folder: Path) -> AsyncIterator[FixtureTab]:
    async with launching(folder) as launcher:
        process = await launcher.start()
        tab = FixtureTab(process)
        try:
            await tab.open()
            yield tab
        finally:
            await tab.close()
            await process.close(graceful=False)


@contextlib.asynccontextmanager
async def another_tab(process: ChromiumProcess) -> AsyncIterator[FixtureTab]:
    """One more in the same Chromium."""
    made = await process.cdp.send("Target.createTarget", {"url": "about:blank"})
    tab = FixtureTab(process, str(made["targetId"]))
    try:
        await tab.open()
        yield tab
    finally:
        await tab.close()
        await process.cdp.send("Target.closeTarget", {"targetId": made["targetId"]})
