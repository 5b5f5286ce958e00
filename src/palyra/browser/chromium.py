"""Starts Chromium behind its fences, and looks at each of them before anybody gets it."""

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec

from palyra.browser import engine_limits as limits
from palyra.browser.browser_files import BrowserFiles
from palyra.browser.cdp_pipe import BrowserEnded, CdpPipe
from palyra.browser.chromium_plan import CDP_READ_FD, CDP_WRITE_FD, ChromiumPlan, chromium_plan
from palyra.browser.chromium_process import ChromiumProcess
from palyra.browser.fences import Fence, FenceDown, FencesSeen, judge_fences, refuse_down
from palyra.browser.flags import flags
from palyra.browser.host_layout import account_of, find_layout
from palyra.browser.process_look import look_at_fences
from palyra.browser.process_notes import ProcessNotes
from palyra.browser.process_tree import ProcessTree, StartFailed, spawn

# From linux/nsfs.h: the user namespace that owns another namespace.
_NS_GET_USERNS: Final = 0xB701
# What Chromium says when it can make no user namespace; it ends then.
_NO_SANDBOX_SAID: Final = "No usable sandbox"

Prepare = Callable[[Path], None]


class GuardSockets(Protocol):
    """Opens the guard's listener in a browser's network; the daemon joins it to the sandbox's helper."""

    async def open(self, network: int, owner: int, port: int) -> socket.socket:
        """A TCP socket that listens at 127.0.0.1 of that network. ``owner`` is the user namespace that owns it; both
        are descriptors, which the caller closes."""


class ChromiumSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``uid`` is whom it runs as where the daemon is root; ``allow_no_sandbox`` is browser.allow_no_sandbox."""

    binary: str | None = None
    uid: int = limits.BROWSER_UID
    sizes: limits.FolderSizes = limits.FolderSizes()
    allow_no_sandbox: bool = False


class ChromiumLauncher:
    def __init__(self, guard: GuardSockets, notes: ProcessNotes, settings: ChromiumSettings | None = None) -> None:
        self._guard = guard
        self._notes = notes
        self._settings = settings or ChromiumSettings()

    async def start(self, prepare: Prepare | None = None) -> ChromiumProcess:
        """A browser whose fences were seen. ``prepare`` fills the profile's folder first, in a thread of its own.

        Where its own sandbox cannot be had, and only if the settings allow it, one without: the receipt says so.
        """
        try:
            return await self._start(self._plan(own_sandbox=True), prepare)
        except (StartFailed, FenceDown) as failure:
            if not (self._settings.allow_no_sandbox and _lacks_own_sandbox(failure)):
                raise
        return await self._start(self._plan(own_sandbox=False), prepare)

    def _plan(self, *, own_sandbox: bool) -> ChromiumPlan:
        layout, account = find_layout(self._settings.binary), account_of(self._settings.uid)
        given = flags(own_sandbox=own_sandbox)
        return chromium_plan(layout, account, self._settings.sizes, given, own_sandbox=own_sandbox)

    async def _start(self, plan: ChromiumPlan, prepare: Prepare | None) -> ChromiumProcess:
        tree = spawn(plan.argv)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(_ended, tree)
            try:
                async with asyncio.timeout(limits.START_SECONDS):
                    process = await self._built(plan, tree, prepare, undo)
                    await self._looked_at(plan, process)
            except TimeoutError as late:
                raise tree.failed(f"it was not ready within {limits.START_SECONDS:g} s") from late
            except BrowserEnded as ended:
                raise tree.failed(ended.message) from ended
            undo.pop_all()
            return process

    async def _built(
        self, plan: ChromiumPlan, tree: ProcessTree, prepare: Prepare | None, undo: AsyncExitStack
    ) -> ChromiumProcess:
        """Everything that must be there before Chromium begins; then it begins."""
        first = await tree.built()
        files = BrowserFiles(first, plan.account)
        undo.callback(files.close)
        with _network_of(tree) as (network, owner):
            guard = await self._guard.open(network, owner, limits.GUARD_PORT)
        undo.callback(guard.close)
        forget = partial(self._notes.remove, self._notes.write(first))
        undo.callback(forget)
        if prepare is not None:
            await files.as_browser(partial(prepare, files.profile))
        tree.go()
        cdp = CdpPipe(tree.take(CDP_WRITE_FD), tree.take(CDP_READ_FD))
        undo.callback(cdp.close)
        process = ChromiumProcess(tree, files, guard, cdp, forget)
        undo.callback(process.unwatch)
        return process

    async def _looked_at(self, plan: ChromiumPlan, process: ChromiumProcess) -> None:
        cdp = process.cdp
        process.product = str((await cdp.send("Browser.getVersion", timeout=limits.START_SECONDS)).get("product", ""))
        # A page that answers has a renderer that is in its sandbox.
        opened = await cdp.send("Target.createTarget", {"url": "about:blank"}, timeout=limits.START_SECONDS)
        process.first_target = str(opened["targetId"])
        attached = await cdp.send("Target.attachToTarget", {"targetId": process.first_target, "flatten": True})
        session = str(attached["sessionId"])
        await cdp.send("Runtime.evaluate", {"expression": "0"}, session, timeout=limits.START_SECONDS)
        await cdp.send("Target.detachFromTarget", {"sessionId": session})
        seen = await self._seen(plan, process)
        process.receipt = judge_fences(plan, seen)
        refuse_down(process.receipt)
        process.watch(seen)

    async def _seen(self, plan: ChromiumPlan, process: ChromiumProcess) -> FencesSeen:
        """Nothing announces the start of Chromium's helpers: looked for until they are there, or time is up."""
        while True:
            try:
                seen = await asyncio.to_thread(look_at_fences, process.pid, plan.sizes)
            except OSError as problem:
                raise StartFailed(f"the browser could not be looked at: {problem.strerror}") from problem
            if seen.complete:
                return seen
            await asyncio.sleep(limits.LOOK_AGAIN_SECONDS)


def _lacks_own_sandbox(failure: StartFailed | FenceDown) -> bool:
    """Whether its own sandbox, and nothing else, was what it could not have: any other trouble is no reason to go
    without."""
    if isinstance(failure, FenceDown):
        return bool(failure.details["fences"] == [Fence.OWN_SANDBOX])
    return _NO_SANDBOX_SAID in failure.details.get("said", "")


async def _ended(tree: ProcessTree) -> None:
    await asyncio.shield(tree.end())


@contextmanager
def _network_of(tree: ProcessTree) -> Iterator[tuple[int, int]]:
    """Descriptors of its network and of the user namespace that owns it."""
    with ExitStack() as opened:
        try:
            network = os.open(f"/proc/{tree.first}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, network)
            owner = fcntl.ioctl(network, _NS_GET_USERNS)
            opened.callback(os.close, owner)
        except OSError as problem:
            raise tree.failed(f"its network could not be reached: {problem.strerror}") from problem
        if os.fstat(network).st_ino == os.stat("/proc/self/ns/net").st_ino:
            raise tree.failed("it has the host's own network")
        yield network, owner
