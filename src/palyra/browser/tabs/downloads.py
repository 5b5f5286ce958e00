"""Joins Chromium's downloads to the session's folders: begun, watched while they grow, copied when they end."""

import asyncio
import logging
from collections import OrderedDict
from typing import Any, Final

from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.download import DownloadRecord, DownloadRefused
from palyra.browser.domain.page_address import Redact, Refusals, render_address
from palyra.browser.engine.background_tasks import BackgroundTasks
from palyra.browser.engine.cdp_connection import CdpPipe
from palyra.browser.engine.launch_plan import DOWNLOADS
from palyra.browser.tabs.download_folder import Announced, DownloadSandboxSession
from palyra.errors import PalyraError

log = logging.getLogger(__name__)

# Answers that may turn out to be downloads.
_MAX_ANSWERS: Final = 32
# Statuses of answers that bring neither a document nor a file.
_NO_CONTENT: Final = (204, 205)


class PageDownloads:
    """Without folders nothing is downloaded at all."""

    def __init__(
        self, cdp: CdpPipe, folders: DownloadSandboxSession | None, refusals: Refusals, redact: Redact
    ) -> None:
        self._cdp = cdp
        self._folders = folders
        self._refusals = refusals
        self._redact = redact
        self._answers: OrderedDict[str, tuple[str | None, int | None]] = OrderedDict()
        # Answers to requests for documents, by request, that have not become one, and those that never will.
        self._documents: OrderedDict[str, str] = OrderedDict()
        self._expected: set[str] = set()
        self._running: dict[str, str] = {}
        self._tasks = BackgroundTasks(log, logging.WARNING)
        self._watching: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._ended = asyncio.Condition()
        # Ids in the order in which they began. An outcome counts from the length at its beginning.
        self.begun: list[str] = []

    async def start(self) -> None:
        if self._folders is None:
            await self._cdp.send("Browser.setDownloadBehavior", {"behavior": "deny", "eventsEnabled": True})
            return
        params = {"behavior": "allowAndName", "downloadPath": DOWNLOADS, "eventsEnabled": True}
        await self._cdp.send("Browser.setDownloadBehavior", params)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._tasks.cancel()

    def on_event(self, event: CdpEvent) -> None:
        if event.method == "Network.responseReceived" and event.params.get("type") == "Document":
            self._answered(str(event.params["requestId"]), event.params["response"])
        elif event.method == "Network.loadingFailed":
            url = self._documents.pop(str(event.params["requestId"]), None)
            if url is not None and event.params.get("canceled"):
                self._expected.add(url)
        elif event.session_id:
            return
        elif event.method == "Browser.downloadWillBegin":
            self._begin(event.params)
        elif event.method == "Browser.downloadProgress" and event.params.get("state") != "inProgress":
            self._end(str(event.params["guid"]), complete=event.params["state"] == "completed")

    @property
    def busy(self) -> bool:
        return bool(self._running or self._expected)

    async def wait_until_settled(self, timeout: float) -> None:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout), self._ended:
                await self._ended.wait_for(lambda: not self._running and not self._expected)
        except TimeoutError:
            return
        finally:
            # A download that has not begun by now was an answer that the page abandoned.
            self._expected.clear()

    def _answered(self, request_id: str, response: dict[str, Any]) -> None:
        if response.get("status") not in _NO_CONTENT:
            self._documents[request_id] = str(response.get("url", ""))
        while len(self._documents) > _MAX_ANSWERS:
            self._documents.popitem(last=False)
        headers = {str(name).lower(): str(value) for name, value in response.get("headers", {}).items()}
        length = headers.get("content-length", "")
        self._answers[str(response.get("url", ""))] = (
            headers.get("content-type"),
            int(length) if length.isdecimal() and len(length) < 16 else None,
        )
        while len(self._answers) > _MAX_ANSWERS:
            self._answers.popitem(last=False)

    def _begin(self, params: dict[str, Any]) -> None:
        guid, url = str(params["guid"]), str(params["url"])
        self._expected.discard(url)
        if self._folders is None:
            self._refusals.add(url, DownloadRefused("this session keeps no downloads"))
            self._tasks.start(self._notify(), "waiting outcomes are notified")
            return
        declared, length = self._answers.get(url, (None, None))
        announced = Announced(
            guid=guid,
            suggested_name=str(params.get("suggestedFilename", "")),
            source=render_address(self._redact(url)),
            declared_type=declared,
        )
        try:
            id_ = self._folders.begin(announced, length)
        except PalyraError as refused:
            self._refusals.add(url, refused)
            self._tasks.start(self._stop(guid), "a download is stopped")
            self._tasks.start(self._notify(), "waiting outcomes are notified")
            return
        self._running[guid] = str(id_)
        self.begun.append(str(id_))
        if self._watching is None:
            self._watching = asyncio.create_task(self._folders.watch(self._cut), name="downloads are watched")

    def _end(self, guid: str, *, complete: bool) -> None:
        if guid in self._running:
            self._tasks.start(self._take_in(guid, complete=complete), "a download is taken in")
        elif self._folders is not None:
            self._tasks.start(asyncio.to_thread(self._folders.discard, guid), "what is left of a download goes")

    async def _take_in(self, guid: str, *, complete: bool) -> None:
        assert self._folders is not None
        record: DownloadRecord | None = None
        try:
            async with self._one_at_a_time:
                if guid not in self._running:
                    # It ended while it was cut.
                    return
                record = await asyncio.to_thread(self._folders.finish, guid, complete=complete)
        finally:
            self._running.pop(guid, None)
            if not self._running and self._watching is not None:
                self._watching.cancel()
                self._watching = None
            await self._notify()
        log.info("a download ended in %s", record.folder if record is not None else "nothing")

    async def _notify(self) -> None:
        async with self._ended:
            self._ended.notify_all()

    async def _cut(self, guid: str) -> None:
        """Copy the arrived part first: Chromium deletes a download that is stopped."""
        self._tasks.start(self._cut_now(guid), "a download is cut")

    async def _cut_now(self, guid: str) -> None:
        await self._take_in(guid, complete=False)
        await self._stop(guid)

    async def _stop(self, guid: str) -> None:
        await self._cdp.send("Browser.cancelDownload", {"guid": guid})
