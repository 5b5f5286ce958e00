"""What a session needs of others: a guard for its traffic, a browser, and the pages in it. A daemon joins them."""

import socket
from collections.abc import Callable
from typing import Protocol

import msgspec

from palyra.browser.budget import SessionMeter
from palyra.browser.chromium_process import ChromiumProcess
from palyra.browser.download_folder import DownloadSandboxSession
from palyra.browser.page_port import Redact, RequestJudge, SessionPages
from palyra.browser.session_view import HealthView
from palyra.egress.events import EgressEvent
from palyra.egress.grant import EgressGrant

Happened = Callable[[EgressEvent], None]
HealthOf = Callable[[], HealthView]


class SessionGuard(Protocol):
    """Serves one session's listener for one grant."""

    def moved(self) -> int:
        """Bytes to and from the outside so far."""
        ...

    async def close(self) -> None:
        """No connection is left when it returns."""
        ...


class Guards(Protocol):
    def judge(self, grant: EgressGrant) -> RequestJudge: ...

    def serve(self, listener: socket.socket, grant: EgressGrant, happened: Happened) -> SessionGuard:
        """From now on. The listener is the guard's; what happens at it is told in the loop's own thread."""
        ...


class Browsers(Protocol):
    async def blank(self) -> ChromiumProcess:
        """One with an empty profile, if there is one from those that are ready."""
        ...

    async def with_profile(self, archive: bytes) -> ChromiumProcess: ...


class PagesNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages of one session are made from."""

    process: ChromiumProcess
    judge: RequestJudge
    meter: SessionMeter
    downloads: DownloadSandboxSession
    redact: Redact
    allow_evaluate: bool


class OpensPages(Protocol):
    async def __call__(self, needs: PagesNeeds) -> SessionPages:
        """Ready for the first action, with every request judged from the first on."""
        ...


class SessionMetrics(Protocol):
    """Counted by closed sets only."""

    def opened(self) -> None: ...

    def closed(self, reason: str) -> None: ...

    def acted(self, kind: str, code: str) -> None: ...

    def egress(self, event: EgressEvent) -> None: ...
