"""Pictures of a tab: what is shown, the whole page, or one element."""

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

_MAX_QUALITY: Final = 100
_NOTHING_DRAWN: Final = "Unable to capture"
_TRIES: Final = 4


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
        data = await self._capture(params, seconds)
        return Made(content=base64.b64decode(data), media_type=f"image/{action.format.value}")

    async def _capture(self, params: dict[str, Any], seconds: float) -> str:
        """On a busy machine Chromium may have drawn nothing yet, and says so: then after its next frame."""
        for _ in range(_TRIES - 1):
            try:
                taken = await self._page.cdp.send("Page.captureScreenshot", params, self._page.session_id, seconds)
                return str(taken["data"])
            except CommandRefused as refused:
                if _NOTHING_DRAWN not in refused.message:
                    raise
            await self._worlds.call(self._frames.main, "nextFrame")
        taken = await self._page.cdp.send("Page.captureScreenshot", params, self._page.session_id, seconds)
        return str(taken["data"])

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
