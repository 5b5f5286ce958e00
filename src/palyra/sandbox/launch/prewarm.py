"""Sandboxes that are built before they are needed, a few for each profile in use.

A warm start takes 0.42 of the time of bubblewrap by hand, a cold one 1.12. ``RunnerSettings.prewarm`` switches it off.
Each sandbox serves one program and then ends. One is built after a call of its profile ended, never before the first.
It ends when no call used it for a while, when others are wanted more, and with the daemon. The runner compares it with
the workspace as it is then, before it serves a call.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from functools import lru_cache

import msgspec

from palyra.errors import PalyraError
from palyra.sandbox import limits
from palyra.sandbox.domain.profile import NewProtectedPolicy, SandboxLimits, SandboxProfile
from palyra.sandbox.launch.built_sandbox import PrewarmedSandbox

_ANY = SandboxLimits()


@lru_cache(maxsize=64)
def sandbox_part(profile: SandboxProfile) -> SandboxProfile:
    """Return the part that a sandbox is built from. The rest judges the call, or reaches the program with its words."""
    return msgspec.structs.replace(
        profile,
        env=(),
        allow_interpreters=False,
        allowed_executables=None,
        appearing_protected=NewProtectedPolicy.KEEP,
        limits=msgspec.structs.replace(
            profile.limits,
            max_output_bytes=_ANY.max_output_bytes,
            kept_output_bytes=_ANY.kept_output_bytes,
            timeout_ms=_ANY.timeout_ms,
        ),
    )


class _Ready(msgspec.Struct, frozen=True, kw_only=True):
    sandbox: PrewarmedSandbox
    until: float


class Prewarm:
    """One per event loop. ``build`` makes a sandbox for a profile, ``end`` ends an unused one."""

    def __init__(
        self,
        build: Callable[[SandboxProfile], Awaitable[PrewarmedSandbox]],
        end: Callable[[PrewarmedSandbox], Awaitable[None]],
        *,
        enabled: bool = True,
    ) -> None:
        self._enabled = enabled
        self._build = build
        self._end = end
        # The profile that was used last is the last.
        self._ready: dict[SandboxProfile, deque[_Ready]] = {}
        self._unwanted: deque[PrewarmedSandbox] = deque()
        self._wanted: dict[SandboxProfile, float] = {}
        self._changed = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> tuple[PrewarmedSandbox, ...]:
        return tuple(each.sandbox for kept in self._ready.values() for each in kept)

    def take(self, profile: SandboxProfile) -> PrewarmedSandbox | None:
        """Take one that waits. The caller compares it with the present workspace before it uses it."""
        kept = self._ready.get(sandbox_part(profile))
        return kept.popleft().sandbox if kept else None

    def put_back(self, profile: SandboxProfile, sandbox: PrewarmedSandbox) -> None:
        """Put back one that was taken and got no order."""
        if self._closed:
            self.discard(sandbox)
            return
        until = asyncio.get_running_loop().time() + limits.WARM_SECONDS
        self._ready.setdefault(sandbox_part(profile), deque()).append(_Ready(sandbox=sandbox, until=until))
        self._changed.set()

    def discard(self, sandbox: PrewarmedSandbox) -> None:
        """End one that is out of date."""
        self._unwanted.append(sandbox)
        self._wake()

    def refill(self, profile: SandboxProfile) -> None:
        """Build the missing ones a moment later: a call of this profile ended, and more will come."""
        if self._closed or not self._enabled:
            return
        wanted = sandbox_part(profile)
        self._ready[wanted] = self._ready.pop(wanted, deque())
        self._wanted.setdefault(wanted, asyncio.get_running_loop().time() + limits.WARM_REFILL_SECONDS)
        self._wake()

    async def close(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker
        if self._ending is not None:
            await self._ending
        left = self.waiting
        self._ready.clear()
        for sandbox in (*left, *self._unwanted):
            await self._end(sandbox)
        self._unwanted.clear()

    def _wake(self) -> None:
        self._changed.set()
        if self._worker is None and not self._closed:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Do one thing after the other: building sandboxes must not keep this machine busy."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            self._expire(now)
            if self._unwanted:
                self._ending = asyncio.ensure_future(self._end(self._unwanted.popleft()))
                await asyncio.shield(self._ending)
            elif due := [profile for profile, when in self._wanted.items() if when <= now]:
                await self._build_one(due[-1])
            else:
                self._changed.clear()
                times = [*self._wanted.values(), *(kept[0].until for kept in self._ready.values() if kept)]
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(times, default=now + limits.WARM_SECONDS)):
                        await self._changed.wait()

    def _expire(self, now: float) -> None:
        for profile, kept in list(self._ready.items()):
            while kept and kept[0].until <= now:
                self._unwanted.append(kept.popleft().sandbox)
            if not kept and profile not in self._wanted:
                del self._ready[profile]
        while len(self.waiting) > limits.MAX_WARM:
            oldest = next(kept for kept in self._ready.values() if kept)
            self._unwanted.append(oldest.popleft().sandbox)

    async def _build_one(self, profile: SandboxProfile) -> None:
        if len(self._ready.get(profile, ())) >= limits.WARM_PER_PROFILE:
            del self._wanted[profile]
            return
        try:
            sandbox = await self._build(profile)
        except PalyraError:
            # The next call of this profile meets the same problem, and reports it to its caller.
            self._wanted.pop(profile, None)
            return
        self.put_back(profile, sandbox)
