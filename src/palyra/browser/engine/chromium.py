"""Starts Chromium in its isolation layers, and inspects each layer before a session gets the browser."""

import asyncio
import fcntl
import os
import select
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from palyra.browser.domain import limits
from palyra.browser.engine.browser_folders import BrowserFiles
from palyra.browser.engine.cdp_connection import BrowserEnded, CdpPipe
from palyra.browser.engine.isolation_layers import (
    BROWSER,
    NETWORK_SERVICE,
    IsolationDown,
    IsolationLayer,
    IsolationReceipt,
    IsolationSeen,
    judge_isolation,
    refuse_down,
)
from palyra.browser.engine.launch_plan import (
    CDP_READ_FD,
    CDP_WRITE_FD,
    Account,
    ChromiumPlan,
    HostLayout,
    chromium_plan,
    flags,
)
from palyra.browser.engine.process_inspection import inspect_isolation, is_ending, start_time
from palyra.browser.engine.process_tree import ProcessNotes, ProcessTree, StartFailed, spawn
from palyra.errors import Failed, InvalidInput, PalyraError, Unavailable
from palyra.sandbox.domain.network import ListenerKind, NetworkPlan
from palyra.sandbox.network.call_network import NamespaceSockets

Archive = Callable[[Path], Awaitable[None]]


class NetworkServiceDied(Unavailable):
    code = "browser.network_service_died"
    hint = "the session was ended, because Chromium may forget its proxy then; open another"


class GuardTaken(Failed):
    code = "browser.guard_taken"
    hint = "a browser serves one session; take another from the pool"


class ChromiumProcess:
    """One running browser for one session. ``failure`` says why it ended; ``close`` must follow in every case.

    The guard's socket listens in the browser's network. The session that took the process serves it. Before that,
    nothing that Chromium sends arrives anywhere.
    """

    def __init__(
        self, tree: ProcessTree, files: BrowserFiles, guard: socket.socket, cdp: CdpPipe, forget: Callable[[], None]
    ) -> None:
        self.cdp = cdp
        self.files = files
        self.receipt = IsolationReceipt(lines=())
        self.product = ""
        # The blank page that becomes the first tab of the session.
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
        return self._tree.first

    @property
    def downloads(self) -> Path:
        return self.files.downloads

    @property
    def alive(self) -> bool:
        return self.failure is None and self._closing is None and not self.cdp.closed.is_set()

    def take_guard(self) -> socket.socket:
        """Return the socket to serve, once. The taker closes it, also when the browser ended by itself."""
        guard, self._guard = self._guard, None
        if guard is None:
            raise GuardTaken("the guard of this browser is served already")
        return guard

    def _close_guard(self) -> None:
        if self._guard is not None:
            self._guard.close()

    async def close(self, *, graceful: bool, archive: Archive | None = None) -> bool:
        """End the browser with everything it started. Return whether it ended by itself when requested.

        Only then has it written its whole profile, and ``archive`` gets the profile's folder: after the last
        process is gone and before the folder is.
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
                clean = await self._tree.wait_until_gone(limits.GRACEFUL_SECONDS) and self._tree.status == 0
            self.cdp.close()
            self._close_guard()
            await self._tree.end()
            self._forget()
            if clean and archive is not None:
                await archive(self.files.profile)
        finally:
            self.files.close()
            self._end(BrowserEnded("the browser was closed"))
        return clean

    def watch(self, seen: IsolationSeen) -> None:
        loop = asyncio.get_running_loop()
        pid = seen.of(BROWSER)[0].pid
        browser = os.pidfd_open(pid)
        self._watched.append(browser)
        for each in seen.of(NETWORK_SERVICE):
            descriptor = os.pidfd_open(each.pid)
            self._watched.append(descriptor)
            # The check follows the opening of the descriptor, so the number still means this process. Its words are no
            # proof: it rewrites them when it begins, and has others or none for a moment.
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
        """Kill first: a network service that Chromium started again may not know the proxy."""
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


# Never through PATH. The wrappers in /usr/bin are shell scripts that do not end with what they start.
CHROMIUM_PLACES: Final = (
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib/chromium/headless_shell",
    "/usr/lib64/chromium-browser/headless_shell",
)
_BWRAP: Final = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
_SETPRIV: Final = ("/usr/bin/setpriv", "/bin/setpriv")
_SHELLS: Final = ("/bin/dash", "/bin/bash", "/bin/sh")
_ROOTS: Final = ("/lib", "/lib32", "/lib64", "/libx32")


class BrowserMissing(Unavailable):
    code = "browser.not_installed"
    hint = "install chromium-headless-shell and bubblewrap (apt install chromium-headless-shell bubblewrap)"


class BadAccount(InvalidInput):
    code = "browser.bad_account"
    hint = "Chromium never runs as root: name the uid of an account that has nothing"


def find_layout(binary: str | None = None) -> HostLayout:
    chromium = _program("Chromium", CHROMIUM_PLACES if binary is None else (binary,))
    links = tuple((path, os.readlink(path)) for path in _ROOTS if os.path.islink(path))
    return HostLayout(
        bwrap=_program("bubblewrap", _BWRAP),
        chromium=chromium,
        shell=os.path.realpath(_program("a shell", _SHELLS)),
        setpriv=_program("setpriv", _SETPRIV),
        links=links,
        directories=tuple(path for path in _ROOTS if os.path.isdir(path) and not os.path.islink(path)),
    )


def account_of(uid: int) -> Account:
    """Return the account that Chromium runs as: this one where the daemon is root, and otherwise our own."""
    own = os.geteuid()
    if own != 0:
        return Account(uid=own, gid=os.getegid(), dropped=False)
    if uid <= 0:
        raise BadAccount(f"uid {uid} cannot be the browser's")
    return Account(uid=uid, gid=uid, dropped=True)


def _program(what: str, places: tuple[str, ...]) -> str:
    """Return the first program of these places. One that other users can write is skipped."""
    for place in places:
        try:
            status = os.stat(place)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and os.access(place, os.X_OK) and not status.st_mode & stat.S_IWOTH:
            return place
    raise BrowserMissing(f"{what} was not found at {', '.join(places)}")


# From linux/nsfs.h: the user namespace that owns another namespace.
_NS_GET_USERNS: Final = 0xB701
# Chromium writes this before it ends when it cannot make a user namespace.
_NO_SANDBOX_SAID: Final = "No usable sandbox"

Prepare = Callable[[Path], None]


class GuardListeners:
    """The guards' listeners in the networks of browsers, opened by the sandbox's helper process."""

    def __init__(self) -> None:
        self._sockets = NamespaceSockets()

    async def open(self, network: int, owner: int, port: int) -> socket.socket:
        """Return a TCP socket that listens at 127.0.0.1 of that network.

        ``owner`` is the user namespace that owns the network. Both are descriptors, which the caller closes.
        """
        opened = await self._sockets.open(NetworkPlan(ports=(), proxy_port=port), network, owner)
        (listener,) = opened.of(ListenerKind.PROXY)
        for each in opened:
            if each.kind is not ListenerKind.PROXY:
                each.socket.close()
        return listener

    async def close(self) -> None:
        await self._sockets.close()


class ChromiumSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``uid`` is the account that Chromium runs as where the daemon is root."""

    binary: str | None = None
    uid: int = limits.BROWSER_UID
    sizes: limits.FolderSizes = limits.FolderSizes()
    allow_no_sandbox: bool = False


class ChromiumLauncher:
    def __init__(self, guard: GuardListeners, notes: ProcessNotes, settings: ChromiumSettings | None = None) -> None:
        self._guard = guard
        self._notes = notes
        self._settings = settings or ChromiumSettings()

    async def start(self, prepare: Prepare | None = None) -> ChromiumProcess:
        """Start a browser and inspect its isolation. ``prepare`` fills the profile's folder first, in a thread."""
        try:
            return await self._start(self._plan(own_sandbox=True), prepare)
        except (StartFailed, IsolationDown) as failure:
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
            undo.push_async_callback(_end_tree, tree)
            try:
                async with asyncio.timeout(limits.START_SECONDS):
                    process = await self._build(plan, tree, prepare, undo)
                    await self._inspect(plan, process)
            except TimeoutError as late:
                raise tree.failed(f"it was not ready within {limits.START_SECONDS:g} s") from late
            except BrowserEnded as ended:
                raise tree.failed(ended.message) from ended
            undo.pop_all()
            return process

    async def _build(
        self, plan: ChromiumPlan, tree: ProcessTree, prepare: Prepare | None, undo: AsyncExitStack
    ) -> ChromiumProcess:
        first = await tree.wait_until_built()
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

    async def _inspect(self, plan: ChromiumPlan, process: ChromiumProcess) -> None:
        cdp = process.cdp
        process.product = str((await cdp.send("Browser.getVersion", timeout=limits.START_SECONDS)).get("product", ""))
        # A page that answers has a renderer that is in its sandbox.
        opened = await cdp.send("Target.createTarget", {"url": "about:blank"}, timeout=limits.START_SECONDS)
        process.first_target = str(opened["targetId"])
        attached = await cdp.send("Target.attachToTarget", {"targetId": process.first_target, "flatten": True})
        session = str(attached["sessionId"])
        await cdp.send("Runtime.evaluate", {"expression": "0"}, session, timeout=limits.START_SECONDS)
        await cdp.send("Target.detachFromTarget", {"sessionId": session})
        seen = await self._inspect_until_complete(plan, process)
        process.receipt = judge_isolation(plan, seen)
        refuse_down(process.receipt)
        process.watch(seen)

    async def _inspect_until_complete(self, plan: ChromiumPlan, process: ChromiumProcess) -> IsolationSeen:
        """Inspect until every helper is there: nothing announces the start of Chromium's helpers."""
        while True:
            try:
                seen = await asyncio.to_thread(inspect_isolation, process.pid, plan.sizes)
            except OSError as problem:
                raise StartFailed(f"the browser could not be looked at: {problem.strerror}") from problem
            if seen.complete:
                return seen
            await asyncio.sleep(limits.LOOK_AGAIN_SECONDS)


def _lacks_own_sandbox(failure: StartFailed | IsolationDown) -> bool:
    if isinstance(failure, IsolationDown):
        return bool(failure.details["fences"] == [IsolationLayer.OWN_SANDBOX])
    return _NO_SANDBOX_SAID in failure.details.get("said", "")


async def _end_tree(tree: ProcessTree) -> None:
    await asyncio.shield(tree.end())


@contextmanager
def _network_of(tree: ProcessTree) -> Iterator[tuple[int, int]]:
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
