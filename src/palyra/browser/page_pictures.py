"""Pictures of a tab: what is shown, the whole page, or one element."""

import asyncio
import base64
from typing import Any, Final

from palyra.browser.action import PictureFormat, Screenshot
from palyra.browser.cdp_codec import CommandRefused
from palyra.browser.element_errors import ElementHidden
from palyra.browser.element_finder import ElementFinder, Located
from palyra.browser.element_input import ElementInput, Needs
from palyra.browser.page_frames import PageFrames, Point
from palyra.browser.page_limits import MAX_PICTURE_PIXELS
from palyra.browser.page_port import Made, PageView
from palyra.browser.page_script import PageWorlds

_MAX_QUALITY = 100
_NOT_DRAWN: Final = "Unable to capture screenshot"


class PagePictures:
    def __init__(
        self, page: PageView, frames: PageFrames, worlds: PageWorlds, finder: ElementFinder, gate: ElementInput
    ) -> None:
        self._page = page
        self._frames = frames
        self._worlds = worlds
        self._finder = finder
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
        taken = await self._captured(params, deadline, seconds)
        return Made(content=base64.b64decode(taken["data"]), media_type=f"image/{action.format.value}")

    async def _captured(self, params: dict[str, Any], deadline: float, seconds: float) -> dict[str, Any]:
        """Chromium refuses a page of which nothing was drawn yet, and takes the same picture a moment later: it is
        asked again with each frame."""
        while True:
            try:
                return await self._page.cdp.send("Page.captureScreenshot", params, self._page.session_id, seconds)
            except CommandRefused as refused:
                late = asyncio.get_running_loop().time() >= deadline
                if late or _NOT_DRAWN not in refused.message:
                    raise
            await self._worlds.call(self._frames.main, "nextFrame")

    async def _clip(self, located: Located, deadline: float) -> dict[str, float]:
        """In the page's own pixels, so the part that is scrolled away counts too."""
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
