"""The view of a session for a person, and input by a person who has taken it over.

Pictures come from Chromium's screencast of the active tab. Chromium sends the next one only after the last was
acknowledged, and only the newest is kept. So slow or many watchers cost no memory.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from palyra.browser.domain.action import BadAction, MouseButton
from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.keys import chord
from palyra.browser.domain.limits import MAX_WATCHERS
from palyra.browser.domain.page_address import Redact, render_address
from palyra.browser.domain.page_errors import DialogOpen, NotTakenOver, TakenOver
from palyra.browser.domain.session_api import LiveFrame, OperatorDoes, OperatorInput
from palyra.browser.engine.cdp_connection import CdpPipe
from palyra.browser.tabs.tab import TabPage
from palyra.errors import LimitExceeded, PalyraError

# A larger picture is dropped. 1280 by 800 in this quality has about a tenth.
MAX_FRAME_BYTES: Final = 2 * 1024 * 1024
MAX_TYPED_CHARS: Final = 4_096
# A page that is busy for longer does not get the input.
OPERATE_SECONDS: Final = 5.0
# The answer to a dialog, which Chromium does not draw here.
_ANSWERS: Final = {"Enter": True, "Escape": False}
_SCREENCAST: Final = {"format": "jpeg", "quality": 60, "maxWidth": 1280, "maxHeight": 1280}
_BUTTONS: Final = {MouseButton.LEFT: 1, MouseButton.RIGHT: 2, MouseButton.MIDDLE: 4}


class TooManyWatchers(LimitExceeded):
    code = "browser.too_many_watchers"
    hint = f"at most {MAX_WATCHERS} people watch one session; close another view"


class ScreencastView:
    """A session as a person sees it. While a person has taken it over, the agent's actions wait or are refused."""

    def __init__(
        self,
        cdp: CdpPipe,
        active: Callable[[], TabPage],
        quiet: Callable[[], Awaitable[None]],
        now_ms: Callable[[], int],
        redact: Redact,
    ) -> None:
        self._cdp = cdp
        self._active = active
        # Returns when no action of the agent's is under way.
        self._quiet = quiet
        self._now_ms = now_ms
        self._redact = redact
        self._taken_by = ""
        self._free = asyncio.Event()
        self._free.set()
        self._watchers: set[asyncio.Event] = set()
        self._newest: LiveFrame | None = None
        self._casting: TabPage | None = None
        self._closed = False
        self._turning = asyncio.Lock()

    @property
    def taken_by(self) -> str:
        return self._taken_by

    async def agents_turn(self, timeout: float) -> None:  # noqa: ASYNC109
        """Wait while a person has the session. Raise ``TakenOver`` at the timeout."""
        if not self._taken_by:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._free.wait()
        except TimeoutError as late:
            raise TakenOver(f"{self._taken_by} has taken this session over", by=self._taken_by) from late

    async def take_over(self, who: str) -> None:
        if not who or self._taken_by not in ("", who):
            raise TakenOver(f"{self._taken_by or 'nobody'} has this session", by=self._taken_by)
        self._taken_by = who
        self._free.clear()
        await self._quiet()

    def hand_back(self, who: str) -> None:
        if self._taken_by != who or not who:
            raise NotTakenOver("the session is not yours to hand back", by=self._taken_by)
        self._taken_by = ""
        self._free.set()

    async def operate(self, who: str, given: OperatorInput) -> None:
        if self._taken_by != who or not who:
            raise NotTakenOver("the session was not taken over", by=self._taken_by)
        tab = self._active()
        dialog = tab.dialog()
        if dialog is not None:
            if given.key not in _ANSWERS:
                raise DialogOpen(f"the page shows a dialog ({dialog.kind})", hint="press Enter or Escape")
            answer = {"accept": _ANSWERS[given.key]}
            await self._cdp.send("Page.handleJavaScriptDialog", answer, tab.session_id)
            return
        for method, params in _commands(given):
            if await tab.ask(method, params, OPERATE_SECONDS) is None:
                return

    async def frames(self) -> AsyncIterator[LiveFrame]:
        if len(self._watchers) >= MAX_WATCHERS:
            raise TooManyWatchers(f"{len(self._watchers)} people watch already")
        news = asyncio.Event()
        self._watchers.add(news)
        shown: LiveFrame | None = None
        try:
            await self.follow()
            if self._newest is not None:
                news.set()
            while not self._closed:
                await news.wait()
                news.clear()
                if self._newest is not None and self._newest is not shown:
                    shown = self._newest
                    yield shown
        finally:
            self._watchers.discard(news)
            with suppress(PalyraError):
                await self.follow()

    async def follow(self) -> None:
        """Start or stop the screencast for the active tab and the watchers. Called when the active tab changes."""
        async with self._turning:
            wanted = self._active() if self._watchers and not self._closed else None
            if wanted is self._casting:
                return
            before, self._casting = self._casting, wanted
            if before is not None and before.failed() is None:
                with suppress(PalyraError):
                    await self._cdp.send("Page.stopScreencast", {}, before.session_id)
            self._newest = None
            if wanted is not None:
                await self._cdp.send("Page.startScreencast", _SCREENCAST, wanted.session_id)

    def on_event(self, tab: TabPage | None, event: CdpEvent) -> None:
        if event.method != "Page.screencastFrame" or tab is None:
            return
        self._cdp.post("Page.screencastFrameAck", {"sessionId": event.params["sessionId"]}, tab.session_id)
        data = str(event.params["data"])
        if tab is not self._casting or len(data) > MAX_FRAME_BYTES * 4 // 3:
            return
        about = event.params.get("metadata", {})
        self._newest = LiveFrame(
            tab=tab.tab,
            url=render_address(self._redact(tab.url)),
            picture=base64.b64decode(data),
            width=int(about.get("deviceWidth", 0)),
            height=int(about.get("deviceHeight", 0)),
            at_ms=self._now_ms(),
        )
        self._tell()

    def close(self) -> None:
        self._closed = True
        self._free.set()
        self._tell()

    def _tell(self) -> None:
        for news in self._watchers:
            news.set()


def _commands(given: OperatorInput) -> list[tuple[str, dict[str, Any]]]:
    at = {"x": given.x, "y": given.y}
    match given.does:
        case OperatorDoes.MOVE:
            return [("Input.dispatchMouseEvent", {"type": "mouseMoved", **at})]
        case OperatorDoes.CLICK:
            button = {"button": str(given.button), "buttons": _BUTTONS[given.button], "clickCount": 1, **at}
            kinds = ("mousePressed", "mouseReleased")
            moved = ("Input.dispatchMouseEvent", {"type": "mouseMoved", **at})
            return [moved, *(("Input.dispatchMouseEvent", {"type": kind, **button}) for kind in kinds)]
        case OperatorDoes.SCROLL:
            wheel = {"type": "mouseWheel", "deltaX": given.dx, "deltaY": given.dy, **at}
            return [("Input.dispatchMouseEvent", wheel)]
        case OperatorDoes.TYPE:
            if not 0 < len(given.text) <= MAX_TYPED_CHARS:
                raise BadAction(f"1 to {MAX_TYPED_CHARS} characters are typed at once")
            return [("Input.insertText", {"text": given.text})]
        case OperatorDoes.KEY:
            strokes = [stroke.events() for stroke in chord(given.key)]
            events = [down for down, _ in strokes] + [up for _, up in reversed(strokes)]
            return [("Input.dispatchKeyEvent", each) for each in events]
