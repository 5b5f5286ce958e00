"""The seams of the page layer: what observation and input need of a tab, and what a session needs of its tabs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec

from palyra.browser.domain.action import (
    Action,
    ActionOutcome,
    ChromiumObserveSnapshot,
    Dialog,
    ElementAction,
    LogEntry,
    ObserveAsk,
    TabView,
)
from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.profile import TabState
from palyra.browser.domain.session_api import LiveFrame, OperatorInput


class FrameView(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of a tab as it is now. ``session_id`` is the CDP session that holds it: a frame of another site may
    live in a process, and a session, of its own. Another document in the same frame has another ``loader_id``."""

    frame_id: str
    loader_id: str
    session_id: str
    url: str
    parent_id: str = ""


class Cdp(Protocol):
    """The connection to Chromium; `cdp_pipe.CdpPipe` is it."""

    async def send(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        session_id: str | None = None,
        timeout: float = ...,  # noqa: ASYNC109  one deadline for sending and answering
    ) -> dict[str, Any]: ...

    def ask(
        self, method: str, params: dict[str, Any] | None = None, session_id: str | None = None, timeout: float = ...
    ) -> Awaitable[dict[str, Any]]:
        """The same, sent already."""
        ...

    def post(self, method: str, params: dict[str, Any], session_id: str | None = None) -> None: ...

    def subscribe(self, session_id: str | None, handler: Callable[[CdpEvent], None]) -> Callable[[], None]: ...


class PageView(Protocol):
    """One tab, for those who look at it and act in it."""

    @property
    def cdp(self) -> Cdp: ...

    @property
    def tab(self) -> str: ...

    @property
    def session_id(self) -> str:
        """The CDP session of the tab's main frame: input and pictures go there."""
        ...

    def frames(self) -> tuple[FrameView, ...]:
        """The main frame first, parents before their children."""
        ...

    async def world(self, frame: FrameView) -> int:
        """The execution context of our isolated world in this very document; raises when the document is gone."""
        ...

    def dialog(self) -> Dialog | None:
        """One that is open: until it is answered the page runs nothing, and nothing in it can be waited for."""
        ...

    def dialog_opened(self) -> Awaitable[Any]:
        """Done when a dialog opens: an input event does not return before that."""
        ...

    async def settle(self, timeout: float, *, answered: bool = False) -> None:  # noqa: ASYNC109  one deadline for all
        """Until a navigation that an input event began has committed and its content is there, if it began one.
        ``answered``: the page has answered since that event, so whatever it began has been told."""
        ...


class PageActor(Protocol):
    """Observation and input of one tab: what the refs of its observations mean lives here."""

    async def perform(self, action: ElementAction, timeout: float) -> "Made": ...  # noqa: ASYNC109

    async def observe(self, ask: ObserveAsk, max_bytes: int, text_bytes: int) -> ChromiumObserveSnapshot: ...


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What an action on an element produced besides its effect."""

    content: bytes = b""
    media_type: str = ""


class SessionPages(Protocol):
    """All tabs of one session. Actions run in the order in which they are asked for, one at a time, and each is taken
    from the session's budget, as is each observation."""

    async def perform(self, action: Action) -> ActionOutcome: ...

    async def observe(self, ask: ObserveAsk) -> ChromiumObserveSnapshot: ...

    def tabs(self) -> tuple[TabView, ...]: ...

    def console_log(self) -> tuple[LogEntry, ...]: ...

    def network_log(self) -> tuple[LogEntry, ...]: ...

    async def cookies(self) -> tuple[dict[str, object], ...]:
        """Names, domains, paths and flags; the values are not in it."""
        ...

    @property
    def live(self) -> "LiveView": ...

    async def saved_tabs(self) -> tuple[TabState, ...]:
        """Where the tabs are, for a profile that persists; the active one first."""
        ...

    async def restore_tabs(self, tabs: tuple[TabState, ...]) -> tuple[str, ...]:
        """Opens them again, each judged anew; says the addresses and codes of those that were refused."""
        ...

    def permissions(self) -> dict[str, tuple[str, ...]]:
        """What was granted in this session: origin to names."""
        ...

    async def restore_permissions(self, granted: dict[str, tuple[str, ...]]) -> None: ...

    async def close(self) -> None:
        """Lets the tabs go. The browser itself is ended by whoever started it."""
        ...


class LiveView(Protocol):
    """A session as a person sees it. While somebody has taken it over, the agent's actions wait or are refused."""

    @property
    def taken_by(self) -> str:
        """Who has it now; empty: the agent."""
        ...

    def frames(self) -> AsyncIterator[LiveFrame]:
        """Pictures of the active tab from now on, the newest only: a slow watcher misses some."""
        ...

    async def take_over(self, who: str) -> None:
        """Returns when the action that runs has ended; raises when another has it already."""
        ...

    def hand_back(self, who: str) -> None: ...

    async def operate(self, who: str, given: OperatorInput) -> None:
        """Input by whoever took the session over."""
        ...


class RequestJudge(Protocol):
    """Whether a session may go somewhere. The guard judges each connection again, with the addresses."""

    async def judge_document(self, url: str) -> None:
        """For a navigation, redirect, popup or frame; raises with the code of the refusal."""
        ...

    def judge_request(self, url: str) -> None:
        """For anything a page loads."""
        ...


# The text with every known secret taken out: everything a page can say passes through here before it leaves.
Redact = Callable[[str], str]
