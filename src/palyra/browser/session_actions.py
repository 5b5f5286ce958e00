"""Which part does which action: navigations, tabs, the tab as a whole, or the actor of its elements."""

from typing import Any, Final, Protocol

import msgspec

from palyra.browser import action as does
from palyra.browser.action import Action, BadAction
from palyra.browser.budget import SessionMeter
from palyra.browser.navigation import Navigator
from palyra.browser.page_address import require_tab_address
from palyra.browser.page_port import Made, PageActor
from palyra.browser.tab_actions import TabActions
from palyra.browser.tab_page import TabPage

_MS: Final = 1_000.0
# A dialog stops what a page does, not what is done with its tab.
_PAST_DIALOGS: Final = (does.HandleDialog, does.CloseTab, does.SwitchTab, does.OpenTab, does.ResetState)
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
_ELEMENT: Final = (
    does.Click,
    does.DoubleClick,
    does.Hover,
    does.Drag,
    does.Type,
    does.Press,
    does.Select,
    does.SetFileInput,
    does.Scroll,
    does.WaitFor,
    does.Screenshot,
)


class TabSet(Protocol):
    def find_tab(self, tab: str) -> TabPage: ...

    def all_tabs(self) -> tuple[TabPage, ...]: ...

    def actor(self, tab: TabPage) -> PageActor: ...

    async def new_tab(self) -> TabPage: ...

    async def activate(self, tab: TabPage) -> None: ...

    async def end_tab(self, tab: TabPage) -> None: ...

    def active_tab(self) -> TabPage: ...


class Done(msgspec.Struct, frozen=True, kw_only=True):
    made: Made = Made()
    value_json: str = ""


class SessionActions:
    def __init__(self, tabs: TabSet, navigator: Navigator, whole: TabActions) -> None:
        self._tabs = tabs
        self._navigator = navigator
        self._whole = whole

    def goes_past_dialogs(self, action: Action) -> bool:
        return isinstance(action, _PAST_DIALOGS)

    def timeout(self, action: Action, meter: SessionMeter, now: float) -> float:
        field = "max_navigation_timeout_ms" if isinstance(action, _SLOW) else "max_action_timeout_ms"
        return meter.timeout_ms(action.timeout_ms, field, now) / _MS

    async def do(self, tab: TabPage, action: Action, timeout: float) -> tuple[Done, TabPage]:  # noqa: ASYNC109
        """What it made, and the tab that is told of afterwards."""
        if isinstance(action, _ELEMENT):
            return Done(made=await self._tabs.actor(tab).perform(action, timeout)), tab
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
                await self._whole.handle_dialog(tab, action)
                await tab.settle(timeout)
            case does.OpenTab() | does.SwitchTab() | does.CloseTab() | does.ResetState():
                return Done(), await self._tab(tab, action, timeout)
            case does.SetViewport():
                await self._whole.set_viewport(action, self._tabs.all_tabs())
            case does.SetPermissions():
                await self._whole.permissions(action)
            case does.ExportPdf():
                return Done(made=await self._whole.export_pdf(tab, action, timeout)), tab
            case does.Evaluate():
                return Done(value_json=await self._whole.evaluate(tab, action, timeout)), tab
        return Done(), tab

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
        """The old tabs go first: what a page does while it ends is cleared with the rest."""
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
        await self._whole.clear_state(fresh)
        return fresh
