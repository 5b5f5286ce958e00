"""One browser that runs, for one session: its connection, its folders, its fences, and its end."""

import asyncio
import os
import select
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from palyra.browser import engine_limits as limits
from palyra.browser.browser_files import BrowserFiles
from palyra.browser.cdp_pipe import BrowserEnded, CdpPipe
from palyra.browser.fences import BROWSER, NETWORK_SERVICE, FenceReceipt, FencesSeen
from palyra.browser.process_look import is_ending, start_time
from palyra.browser.process_tree import ProcessTree
from palyra.errors import Failed, PalyraError, Unavailable

Archive = Callable[[Path], Awaitable[None]]


class NetworkServiceDied(Unavailable):
    code = "browser.network_service_died"
    hint = "the session was ended, because Chromium may forget its proxy then; open another"


class GuardTaken(Failed):
    code = "browser.guard_taken"
    hint = "a browser serves one session; take another from the pool"


class ChromiumProcess:
    """The guard's socket listens in its network and is served by whoever took the process: before that, nothing that
    Chromium sends arrives anywhere. ``failure`` says why it ended; ``close`` must follow in every case."""

    def __init__(
        self, tree: ProcessTree, files: BrowserFiles, guard: socket.socket, cdp: CdpPipe, forget: Callable[[], None]
    ) -> None:
        self.cdp = cdp
        self.files = files
        self.receipt = FenceReceipt(lines=())
        self.product = ""
        # A blank page that is there already; the first tab of the session.
        self.first_target = ""
        self.ended = asyncio.Event()
        self.failure: PalyraError | None = None
        self._guard: socket.socket | None = guard
        self._tree = tree
        self._forget = forget
        self._closing: asyncio.Task[bool] | None = None
        self._watched: list[int] = []

    @property
    def pid(self) -> int:
        """The first process inside, as the host numbers it."""
        return self._tree.first

    @property
    def profile_dir(self) -> Path:
        return self.files.profile

    @property
    def downloads(self) -> Path:
        return self.files.downloads

    @property
    def alive(self) -> bool:
        return self.failure is None and self._closing is None and not self.cdp.closed.is_set()

    def take_guard(self) -> socket.socket:
        """The socket to serve, once. The taker closes it, also when the browser ended by itself: a socket that is
        served may not be closed under the hands of who serves it."""
        guard, self._guard = self._guard, None
        if guard is None:
            raise GuardTaken("the guard of this browser is served already")
        return guard

    def _close_guard(self) -> None:
        if self._guard is not None:
            self._guard.close()

    async def close(self, *, graceful: bool, archive: Archive | None = None) -> bool:
        """Ends it with everything it started. Says whether it ended by itself when asked to: only then has it written
        its whole profile.

        ``archive`` gets the profile's folder then, after the last process is gone and before the folder is.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(graceful, archive), name="a browser is closed")
        return await asyncio.shield(self._closing)

    async def _close(self, graceful: bool, archive: Archive | None) -> bool:
        self.unwatch()
        clean = False
        try:
            if graceful and self.failure is None:
                # It may be gone before its answer is here.
                with suppress(PalyraError):
                    await self.cdp.send("Browser.close", timeout=limits.GRACEFUL_SECONDS)
                clean = await self._tree.gone(limits.GRACEFUL_SECONDS) and self._tree.status == 0
            self.cdp.close()
            self._close_guard()
            await self._tree.end()
            self._forget()
            if clean and archive is not None:
                await archive(self.profile_dir)
        finally:
            self.files.close()
            self._end(BrowserEnded("the browser was closed"))
        return clean

    def watch(self, seen: FencesSeen) -> None:
        """From now on the end of the network service, or of the whole, ends it with a code."""
        loop = asyncio.get_running_loop()
        pid = seen.of(BROWSER)[0].pid
        browser = os.pidfd_open(pid)
        self._watched.append(browser)
        for each in seen.of(NETWORK_SERVICE):
            descriptor = os.pidfd_open(each.pid)
            self._watched.append(descriptor)
            # Looked at after the descriptor was opened: from now on the number is this process's. Not by its words: it
            # writes them anew when it begins, and has others or none for a moment.
            if start_time(each.pid) != each.started:
                raise NetworkServiceDied("Chromium's network service ended while it was started")
            loop.add_reader(descriptor, self._network_service_ended, browser, pid)
        self._tree.on_end(self._tree_ended)

    def _network_service_ended(self, browser: int, pid: int) -> None:
        if _has_ended(browser) or is_ending(pid):
            self._fail(BrowserEnded("Chromium ended"))
        else:
            self._fail(NetworkServiceDied("Chromium's network service ended"))

    def _tree_ended(self) -> None:
        if self._closing is None:
            self._fail(BrowserEnded("Chromium ended", said=self._tree.said))

    def _fail(self, why: PalyraError) -> None:
        """Killed first: a network service that was started again may know no proxy."""
        self._tree.kill()
        self.unwatch()
        self._close_guard()
        self._end(why)
        self.cdp.close(why)

    def _end(self, why: PalyraError) -> None:
        if self.failure is None:
            self.failure = why
        self.ended.set()

    def unwatch(self) -> None:
        loop = asyncio.get_running_loop()
        for descriptor in self._watched:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._watched.clear()


def _has_ended(process: int) -> bool:
    looking = select.poll()
    looking.register(process, select.POLLIN)
    return bool(looking.poll(0))
