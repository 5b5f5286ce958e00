"""What is done to a tab as a whole: its size, its permissions, its dialog, scripts, printing, a clean slate."""

import asyncio
import base64
import json
from typing import Any, Final

from palyra.browser.action import BadAction, Evaluate, ExportPdf, HandleDialog, SetPermissions, SetViewport
from palyra.browser.budget import SessionMeter, TooLarge
from palyra.browser.cdp_codec import CommandRefused
from palyra.browser.cdp_pipe import CdpPipe
from palyra.browser.page_address import origin_of, shown_address
from palyra.browser.page_errors import DocumentGone, EvaluateDenied, NoDialog, ScriptFailed, UnknownPermission
from palyra.browser.page_logs import exception_text
from palyra.browser.page_port import Made, Redact
from palyra.browser.tab_page import TabPage

# Beyond these a page cannot be drawn in the memory that Chromium has.
MAX_VIEWPORT_SIDE: Final = 4_096
MIN_VIEWPORT_SIDE: Final = 64
MAX_SCALE: Final = 4.0
MIN_SCALE: Final = 0.25
# Ours on the left, Chromium's on the right: only what a page can be given without reaching past its fences.
PERMISSIONS: Final = {
    "geolocation": "geolocation",
    "notifications": "notifications",
    "clipboard-read": "clipboardReadWrite",
    "clipboard-write": "clipboardSanitizedWrite",
    "camera": "videoCapture",
    "microphone": "audioCapture",
    "midi": "midi",
    "background-sync": "backgroundSync",
    "persistent-storage": "durableStorage",
    "storage-access": "storageAccess",
    "sensors": "sensors",
    "idle-detection": "idleDetection",
    "wake-lock": "wakeLockScreen",
}
# What Chromium says when a page was left while a script ran in it.
_GONE: Final = ("navigated or closed", "context was destroyed", "find context")
_CHUNK_BYTES: Final = 256 * 1024
_SHOWN_ERROR_CHARS: Final = 500


class TabActions:
    def __init__(self, cdp: CdpPipe, meter: SessionMeter, redact: Redact, *, allow_evaluate: bool) -> None:
        self._cdp = cdp
        self._meter = meter
        self._redact = redact
        self._allow_evaluate = allow_evaluate
        self.viewport: dict[str, Any] | None = None
        self.granted: dict[str, tuple[str, ...]] = {}

    async def set_viewport(self, action: SetViewport, tabs: tuple[TabPage, ...]) -> None:
        """For the whole session: tabs that come later have it too."""
        sides = (action.width, action.height)
        if not all(MIN_VIEWPORT_SIDE <= side <= MAX_VIEWPORT_SIDE for side in sides):
            raise BadAction(f"a viewport has {MIN_VIEWPORT_SIDE} to {MAX_VIEWPORT_SIDE} pixels on each side")
        if not MIN_SCALE <= action.scale <= MAX_SCALE:
            raise BadAction(f"a scale is from {MIN_SCALE} to {MAX_SCALE}")
        self.viewport = {
            "width": action.width,
            "height": action.height,
            "deviceScaleFactor": action.scale,
            "mobile": False,
        }
        for tab in tabs:
            await self._cdp.send("Emulation.setDeviceMetricsOverride", self.viewport, tab.session_id)

    async def set_permissions(self, origin: str, grant: tuple[str, ...]) -> None:
        if origin_of(origin) != origin.lower().rstrip("/"):
            raise BadAction(f"{shown_address(origin)!r} is not an origin such as https://example.com")
        unknown = [name for name in grant if name not in PERMISSIONS]
        if unknown:
            raise UnknownPermission(f"{unknown[0][:64]!r} cannot be granted", known=sorted(PERMISSIONS))
        names = sorted({PERMISSIONS[name] for name in grant})
        await self._cdp.send("Browser.grantPermissions", {"origin": origin_of(origin), "permissions": names})
        if grant:
            self.granted[origin_of(origin)] = grant
        else:
            self.granted.pop(origin_of(origin), None)

    async def permissions(self, action: SetPermissions) -> None:
        await self.set_permissions(action.origin, action.grant)

    async def handle_dialog(self, tab: TabPage, action: HandleDialog) -> None:
        if tab.dialog() is None:
            raise NoDialog(f"no dialog is open in tab {tab.tab}", tab=tab.tab)
        self._meter.require("max_type_input_bytes", len(action.text.encode()))
        params: dict[str, Any] = {"accept": action.accept}
        if action.text:
            params["promptText"] = action.text
        await self._cdp.send("Page.handleJavaScriptDialog", params, tab.session_id)

    async def export_pdf(self, tab: TabPage, action: ExportPdf, timeout: float) -> Made:  # noqa: ASYNC109
        params = {"landscape": action.landscape, "printBackground": True, "transferMode": "ReturnAsStream"}
        async with asyncio.timeout(timeout):
            printed = await self._cdp.send("Page.printToPDF", params, tab.session_id, timeout)
        stream = {"handle": printed["stream"]}
        content = bytearray()
        try:
            while True:
                part = await self._cdp.send("IO.read", {**stream, "size": _CHUNK_BYTES}, tab.session_id)
                data = str(part.get("data", ""))
                content += base64.b64decode(data) if part.get("base64Encoded") else data.encode()
                self._meter.require("max_screenshot_bytes", len(content))
                if part.get("eof"):
                    return Made(content=bytes(content), media_type="application/pdf")
        finally:
            self._cdp.post("IO.close", stream, tab.session_id)

    async def evaluate(self, tab: TabPage, action: Evaluate, timeout: float) -> str:  # noqa: ASYNC109
        """The JSON text of what the script returned."""
        if not self._allow_evaluate:
            raise EvaluateDenied("scripts are not allowed in this session")
        self._meter.require("max_type_input_bytes", len(action.expression.encode()))
        params = {
            "expression": action.expression,
            "awaitPromise": True,
            "returnByValue": True,
            "userGesture": True,
            "timeout": int(timeout * 1000),
        }
        try:
            answer = await tab.ask("Runtime.evaluate", params, timeout)
        except CommandRefused as refused:
            if any(word in refused.details["cdp_message"] for word in _GONE):
                raise DocumentGone("the page went away while the script ran") from refused
            raise ScriptFailed("what the script returned has no JSON form") from refused
        if answer is None:
            # A dialog: the script goes on when that was answered.
            return ""
        if "exceptionDetails" in answer:
            text = self._redact(exception_text(answer["exceptionDetails"]))
            raise ScriptFailed(f"the script failed: {text[:_SHOWN_ERROR_CHARS]}")
        value = answer["result"].get("value")
        text = self._redact(json.dumps(value, ensure_ascii=False))
        if len(text.encode()) > self._meter.budget.max_response_bytes:
            raise TooLarge(
                "the script returned more than a reply may have",
                field="max_response_bytes",
                limit=self._meter.budget.max_response_bytes,
            )
        return text

    async def clear_state(self, tab: TabPage) -> None:
        """Everything that any site has stored in this browser. The tab must show no site: it would store again."""
        await self._cdp.send("Storage.clearCookies", {})
        await self._cdp.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"}, tab.session_id)
        await self._cdp.send("Network.clearBrowserCache", {}, tab.session_id)
        await self._cdp.send("Browser.resetPermissions", {})
        self.granted.clear()
