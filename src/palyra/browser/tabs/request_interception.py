"""Holds every request of a session until it was judged: of pages, frames, popups and workers of every kind.

Requests are held at the browser, not at each target. So a new target has no moment in which it could send something
unjudged, and a service worker's own requests are judged like a page's. Chromium does not hold WebSockets and
prefetches by speculation rules: they are judged when they are reported, and only the guard stops them.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.page_address import AddressKind, Refusals, RequestJudge, kind_of, render_address
from palyra.browser.domain.page_errors import SchemeRefused
from palyra.browser.engine.background_tasks import BackgroundTasks
from palyra.browser.engine.cdp_connection import CdpPipe
from palyra.errors import InternalError, PalyraError

log = logging.getLogger(__name__)

# Each may look up a name; a page with a thousand frames waits.
MAX_JUDGED_AT_ONCE: Final = 16
# Documents that were judged and may still commit.
_MAX_JUDGED_KEPT: Final = 1_024


class Interception:
    def __init__(self, cdp: CdpPipe, judge: RequestJudge, refusals: Refusals) -> None:
        self._cdp = cdp
        self._judge = judge
        self._refusals = refusals
        self._judging = BackgroundTasks(log)
        self._room = asyncio.Semaphore(MAX_JUDGED_AT_ONCE)
        self._stop = cdp.subscribe(None, self._on_event)
        self._judged: dict[str, None] = {}
        self.held = 0

    async def start(self) -> None:
        await self._cdp.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})

    async def close(self) -> None:
        self._stop()
        await self._judging.cancel()

    def was_judged(self, loader_id: str) -> bool:
        return loader_id in self._judged

    async def judge_document(self, url: str, *, frame: str = "") -> None:
        try:
            await self._judge.judge_document(url)
        except PalyraError as refused:
            self._refusals.add(url, refused, frame=frame, document=True)
            raise

    def look_at(self, url: str, frame: str) -> str:
        """Judge a request that is only reported. Record a refusal and return its code, or an empty text."""
        try:
            self._require(url, {})
        except PalyraError as refused:
            self._refusals.add(url, refused, frame=frame)
            return refused.code
        return ""

    def _on_event(self, event: CdpEvent) -> None:
        if event.method != "Fetch.requestPaused":
            return
        self.held += 1
        params = event.params
        id_, url = str(params["requestId"]), str(params["request"]["url"])
        if params.get("resourceType") == "Document" and kind_of(url) is AddressKind.WEB:
            self._judging.start(self._document(id_, url, params), "a document is judged")
            return
        try:
            self._require(url, params["request"])
        except PalyraError as refused:
            self._refuse(id_, url, refused, params)
        else:
            self._go_on(id_)

    async def _document(self, id_: str, url: str, params: dict[str, Any]) -> None:
        try:
            async with self._room:
                await self._judge.judge_document(url)
            self._require(url, params["request"])
        except PalyraError as refused:
            self._refuse(id_, url, refused, params)
        except Exception:  # a judge that fails has not allowed it
            log.exception("a document could not be judged")
            self._refuse(id_, url, InternalError("the address could not be judged"), params)
        else:
            self._judged[str(params.get("networkId", ""))] = None
            while len(self._judged) > _MAX_JUDGED_KEPT:
                del self._judged[next(iter(self._judged))]
            self._go_on(id_)

    def _require(self, url: str, request: Mapping[str, Any]) -> None:
        """Judge a request as Chromium describes it. One that is only reported counts as a plain GET."""
        kind = kind_of(url)
        if kind is AddressKind.FORBIDDEN:
            raise SchemeRefused(f"a page may not load {render_address(url)!r}")
        if kind is AddressKind.WEB:
            try:
                self._judge.judge_request(url)
                headers = tuple((name, str(value)) for name, value in request.get("headers", {}).items())
                self._judge.judge_content(url, str(request.get("method", "GET")), headers)
            except PalyraError:
                raise
            except Exception as problem:  # the same
                log.exception("a request could not be judged")
                raise InternalError("the address could not be judged") from problem

    def _go_on(self, id_: str) -> None:
        self._post("Fetch.continueRequest", {"requestId": id_})

    def _refuse(self, id_: str, url: str, refused: PalyraError, params: dict[str, Any]) -> None:
        frame = str(params.get("frameId", ""))
        self._refusals.add(url, refused, frame=frame, document=params.get("resourceType") == "Document")
        self._post("Fetch.failRequest", {"requestId": id_, "errorReason": "BlockedByClient"})

    def _post(self, method: str, params: dict[str, Any]) -> None:
        try:
            self._cdp.post(method, params)
        except PalyraError as problem:
            # The request stays where it is: held.
            log.warning("a held request could not be answered: %s", problem.message)
