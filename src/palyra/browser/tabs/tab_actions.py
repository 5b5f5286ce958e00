"""Actions on a tab as a whole, and the outcome of every action."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from palyra.browser.domain import action as does
from palyra.browser.domain.action import (
    Action,
    ActionOutcome,
    BadAction,
    Dialog,
    ElementAction,
    Evaluate,
    ExportPdf,
    HandleDialog,
    LoadState,
    Made,
    SetViewport,
    TabView,
)
from palyra.browser.domain.budget import SessionMeter, TooLarge
from palyra.browser.domain.cdp_messages import CommandRefused
from palyra.browser.domain.page_address import Redact, Refusals, origin_of, render_address, require_tab_address
from palyra.browser.domain.page_errors import DocumentGone, EvaluateDenied, NoDialog, ScriptFailed, UnknownPermission
from palyra.browser.domain.page_logs import PageLogs, exception_text
from palyra.browser.engine.cdp_connection import CdpPipe
from palyra.browser.page.page import ElementActor
from palyra.browser.tabs.downloads import PageDownloads
from palyra.browser.tabs.navigation import Navigator
from palyra.browser.tabs.tab import TabPage, TabSet
from palyra.clock import MS_PER_SECOND
from palyra.errors import PalyraError

# Beyond these a page cannot be drawn in the memory that Chromium has.
MAX_VIEWPORT_SIDE: Final = 4_096
MIN_VIEWPORT_SIDE: Final = 64
MAX_SCALE: Final = 4.0
MIN_SCALE: Final = 0.25
# Our names and Chromium's: only permissions that do not let a page reach past its isolation.
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
# Chromium answers this when a page was left while a script ran in it.
_GONE: Final = ("navigated or closed", "context was destroyed", "find context")
_CHUNK_BYTES: Final = 256 * 1024
_SHOWN_ERROR_CHARS: Final = 500


# A dialog stops the page, not these actions on its tab.
PAST_DIALOGS: Final = (does.HandleDialog, does.CloseTab, does.SwitchTab, does.OpenTab, does.ResetState)
_SLOW: Final = (
    does.Navigate,
    does.Back,
    does.Forward,
    does.Reload,
    does.OpenTab,
    does.WaitFor,
    does.HandleDialog,
    does.ResetState,
    does.ExportPdf,
)


class SessionActions:
    def __init__(
        self,
        cdp: CdpPipe,
        meter: SessionMeter,
        redact: Redact,
        tabs: TabSet,
        actor: Callable[[TabPage], ElementActor],
        navigator: Navigator,
        *,
        allow_evaluate: bool,
    ) -> None:
        self._cdp = cdp
        self._meter = meter
        self._redact = redact
        self._tabs = tabs
        self._actor = actor
        self._navigator = navigator
        self._allow_evaluate = allow_evaluate
        self.viewport: dict[str, Any] | None = None
        self.granted: dict[str, tuple[str, ...]] = {}

    def timeout(self, action: Action, now: float) -> float:
        field = "max_navigation_timeout_ms" if isinstance(action, _SLOW) else "max_action_timeout_ms"
        return self._meter.timeout_ms(action.timeout_ms, field, now) / MS_PER_SECOND

    async def do(self, tab: TabPage, action: Action, timeout: float) -> tuple[Made, TabPage]:  # noqa: ASYNC109
        if isinstance(action, ElementAction):
            return await self._actor(tab).perform(action, timeout), tab
        match action:
            case does.Navigate():
                await self._navigator.navigate_with_guards(tab, action.url, action.wait, timeout)
            case does.Back():
                await self._navigator.go(tab, -1, action.wait, timeout)
            case does.Forward():
                await self._navigator.go(tab, 1, action.wait, timeout)
            case does.Reload():
                await self._navigator.reload(tab, action.wait, timeout)
            case does.HandleDialog():
                await self.handle_dialog(tab, action)
                await tab.settle(timeout)
            case does.OpenTab() | does.SwitchTab() | does.CloseTab() | does.ResetState():
                return Made(), await self._tab(tab, action, timeout)
            case does.SetViewport():
                await self.set_viewport(action)
            case does.SetPermissions():
                await self.set_permissions(action.origin, action.grant)
            case does.ExportPdf():
                return await self.export_pdf(tab, action, timeout), tab
            case does.Evaluate():
                return Made(value_json=await self.evaluate(tab, action, timeout)), tab
        return Made(), tab

    async def _tab(self, tab: TabPage, action: Any, timeout: float) -> TabPage:  # noqa: ASYNC109
        match action:
            case does.OpenTab():
                if action.url:
                    # Refused before there is a tab for it.
                    require_tab_address(action.url)
                opened = await self._tabs.new_tab()
                await self._tabs.activate(opened)
                if action.url:
                    await self._navigator.navigate_with_guards(opened, action.url, does.LoadState.LOADED, timeout)
                return opened
            case does.SwitchTab():
                if not action.tab:
                    raise BadAction("say which tab to switch to")
                await self._tabs.activate(tab)
                return tab
            case does.CloseTab():
                await self._tabs.end_tab(tab)
                return self._tabs.active_tab()
            case _:
                return await self._reset(timeout)

    async def _reset(self, timeout: float) -> TabPage:  # noqa: ASYNC109
        """Close the old tabs first: their last writes are cleared with the rest."""
        before = self._tabs.all_tabs()
        last = before[-1]
        for tab in before[:-1]:
            await self._tabs.end_tab(tab)
        fresh = await self._tabs.new_tab() if len(before) == 1 else None
        if fresh is not None:
            await self._tabs.activate(fresh)
            await self._tabs.end_tab(last)
        else:
            fresh = last
            await self._navigator.navigate_with_guards(fresh, "about:blank", does.LoadState.LOADED, timeout)
        await self.clear_state(fresh)
        return fresh

    async def set_viewport(self, action: SetViewport) -> None:
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
        for tab in self._tabs.all_tabs():
            await self._cdp.send("Emulation.setDeviceMetricsOverride", self.viewport, tab.session_id)

    async def set_permissions(self, origin: str, grant: tuple[str, ...]) -> None:
        if origin_of(origin) != origin.lower().rstrip("/"):
            raise BadAction(f"{render_address(origin)!r} is not an origin such as https://example.com")
        unknown = [name for name in grant if name not in PERMISSIONS]
        if unknown:
            raise UnknownPermission(f"{unknown[0][:64]!r} cannot be granted", known=sorted(PERMISSIONS))
        names = sorted({PERMISSIONS[name] for name in grant})
        await self._cdp.send("Browser.grantPermissions", {"origin": origin_of(origin), "permissions": names})
        if grant:
            self.granted[origin_of(origin)] = grant
        else:
            self.granted.pop(origin_of(origin), None)

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
        """Clear the stored data of every site. The tab must not show a site, which would store again."""
        await self._cdp.send("Storage.clearCookies", {})
        await self._cdp.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"}, tab.session_id)
        await self._cdp.send("Network.clearBrowserCache", {}, tab.session_id)
        await self._cdp.send("Browser.resetPermissions", {})
        self.granted.clear()


# An outcome waits this long for a popup to have its address, and for a download to end.
NEWS_SECONDS: Final = 1.0
# It waits this long for a new document to report its title, or that it has none.
TITLE_SECONDS: Final = 0.25
MAX_CONSOLE_ERRORS: Final = 10
MAX_REFUSED: Final = 20
_MAX_LINE_CHARS: Final = 300
_MAX_TITLE_CHARS: Final = 512


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    refusals: int
    console: int
    downloads: int
    tabs: int


class OutcomeTeller:
    def __init__(
        self,
        refusals: Refusals,
        logs: PageLogs,
        downloads: PageDownloads,
        look: Callable[[], Awaitable[None]],
        redact: Redact,
    ) -> None:
        self._look = look
        self._refusals = refusals
        self._logs = logs
        self._downloads = downloads
        self._redact = redact

    async def tell(
        self, tab: TabPage, mark: Mark, made: Made, new_tabs: tuple[TabPage, ...], *, active: bool
    ) -> ActionOutcome:
        for each in new_tabs:
            await self._arrived(each)
        if self._downloads.busy:
            await self._downloads.wait_until_settled(NEWS_SECONDS)
        if not all(each.title_reported for each in (tab, *new_tabs)):
            with suppress(PalyraError):
                await tab.until(lambda: tab.title_reported or tab.load.has_reached(LoadState.CONTENT), TITLE_SECONDS)
            with suppress(PalyraError):
                await self._look()
        shown = self.view(tab, active=active)
        errors = [text[:_MAX_LINE_CHARS] for text in self._logs.errors(mark.console)]
        refused = list(dict.fromkeys(each.line for each in self._refusals.since(mark.refusals)))
        return ActionOutcome(
            tab=tab.tab,
            url=shown.url,
            title=shown.title,
            status=tab.load.status,
            loading=tab.load.busy,
            dialog=self._dialog(tab.dialog()),
            new_tabs=tuple(self.view(each, active=False) for each in new_tabs),
            downloads=tuple(self._downloads.begun[mark.downloads :]),
            console_errors=tuple(errors[-MAX_CONSOLE_ERRORS:]),
            refused=tuple(refused[:MAX_REFUSED]),
            content=made.content,
            media_type=made.media_type,
            value_json=made.value_json,
        )

    def view(self, tab: TabPage, *, active: bool) -> TabView:
        plain = tab.view(active=active)
        return msgspec.structs.replace(plain, url=self._render_address(plain.url), title=self._clean_title(plain.title))

    async def _arrived(self, tab: TabPage) -> None:
        """Wait until a popup has committed: its address is known then."""
        try:
            await tab.until(lambda: tab.ready.is_set() and not tab.load.moving, NEWS_SECONDS)
        except PalyraError:
            return

    def _dialog(self, dialog: Dialog | None) -> Dialog | None:
        if dialog is None:
            return None
        return msgspec.structs.replace(
            dialog, message=self._redact(dialog.message), default_text=self._redact(dialog.default_text)
        )

    def _render_address(self, url: str) -> str:
        return render_address(self._redact(url))

    def _clean_title(self, title: str) -> str:
        return self._redact(title)[:_MAX_TITLE_CHARS]
