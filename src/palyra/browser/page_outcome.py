"""What is told after an action: where the tab is now, and everything that happened since the action began."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from palyra.browser.action import ActionOutcome, Dialog, LoadState, TabView
from palyra.browser.page_address import shown_address
from palyra.browser.page_downloads import PageDownloads
from palyra.browser.page_logs import PageLogs
from palyra.browser.page_port import Redact
from palyra.browser.refusals import Refusals
from palyra.browser.session_actions import Done
from palyra.browser.tab_page import TabPage
from palyra.errors import PalyraError

# How long an outcome waits for a popup to have its address, and for a download to end.
NEWS_SECONDS: Final = 1.0
# And for a document that has just come to tell its title, or that it has none.
TITLE_SECONDS: Final = 0.25
MAX_CONSOLE_ERRORS: Final = 10
MAX_REFUSED: Final = 20
_MAX_LINE_CHARS: Final = 300
_MAX_TITLE_CHARS: Final = 512


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How much there was of each when an action began."""

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
        self, tab: TabPage, mark: Mark, done: Done, new_tabs: tuple[TabPage, ...], *, active: bool
    ) -> ActionOutcome:
        for each in new_tabs:
            await self._arrived(each)
        if self._downloads.busy:
            await self._downloads.settled(NEWS_SECONDS)
        if not all(each.title_told for each in (tab, *new_tabs)):
            with suppress(PalyraError):
                await tab.until(lambda: tab.title_told or tab.load.has_reached(LoadState.CONTENT), TITLE_SECONDS)
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
            content=done.made.content,
            media_type=done.made.media_type,
            value_json=done.value_json,
        )

    def view(self, tab: TabPage, *, active: bool) -> TabView:
        plain = tab.view(active=active)
        return msgspec.structs.replace(plain, url=self._shown(plain.url), title=self._titled(plain.title))

    async def _arrived(self, tab: TabPage) -> None:
        """A popup's address is known when it has committed."""
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

    def _shown(self, url: str) -> str:
        return shown_address(self._redact(url))

    def _titled(self, title: str) -> str:
        return self._redact(title)[:_MAX_TITLE_CHARS]
