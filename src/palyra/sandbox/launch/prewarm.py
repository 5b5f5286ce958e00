"""Sandboxes that are built before they are needed, a few for each profile that is in use.

Each serves one program and is then gone. One is built after a call of its profile ended, never before the first; it is
ended when nobody wanted it for a while, when others are wanted more, and with the daemon. Whether one may serve a call
is not decided here: the runner compares it with the workspace as it is at that moment.
"""

import asyncio
import contextlib
import os
import platform
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from palyra.errors import PalyraError
from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Facts
from palyra.sandbox.domain.launch_spec import LaunchFailed, LaunchSpec, LaunchStage
from palyra.sandbox.domain.plan import WAITS_INSIDE, BubblewrapPlan, environment_of, plan_isolated
from palyra.sandbox.domain.process_run import ProcessCommand, RuntimeFailure, SpawnFailed
from palyra.sandbox.domain.profile import (
    EgressEnforcementMode,
    NewProtectedPolicy,
    SandboxLimits,
    SandboxProfile,
    SandboxTier,
)
from palyra.sandbox.guards.checks import Checked
from palyra.sandbox.launch.built_sandbox import BegunSandbox, WaitingSandbox, begin
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.layers.bubblewrap import gather_host
from palyra.sandbox.layers.cgroup import CgroupPool, Group
from palyra.sandbox.layers.protected_mounts import gather_workspace
from palyra.sandbox.layers.seccomp import build_tier_b_filter, build_tier_c_filter
from palyra.sandbox.network.call_network import NamespaceSockets
from palyra.sandbox.verify.readback import NotBuilt

_ANY = SandboxLimits()
# Used sandboxes whose mounts are still held, until there is a quiet moment.
_HELD_AFTER_USE: Final = 2


@lru_cache(maxsize=64)
def sandbox_part(profile: SandboxProfile) -> SandboxProfile:
    """What a sandbox is built from. The rest of a profile judges the call, or reaches the program with its words."""
    wanted = profile.limits
    return msgspec.structs.replace(
        profile,
        env=(),
        allow_interpreters=False,
        allowed_executables=None,
        appearing_protected=NewProtectedPolicy.KEEP,
        limits=msgspec.structs.replace(
            wanted,
            max_output_bytes=_ANY.max_output_bytes,
            kept_output_bytes=_ANY.kept_output_bytes,
            timeout_ms=_ANY.timeout_ms,
        ),
    )


class _Ready(msgspec.Struct, frozen=True, kw_only=True):
    sandbox: WaitingSandbox
    until: float


class WarmPool:
    """One per event loop. ``build`` makes one for a profile, ``end`` ends one that was not used."""

    def __init__(
        self,
        build: Callable[[SandboxProfile], Awaitable[WaitingSandbox]],
        end: Callable[[WaitingSandbox], Awaitable[None]],
        *,
        enabled: bool = True,
    ) -> None:
        self._enabled = enabled
        self._build = build
        self._end = end
        # The profile that was used last is the last.
        self._ready: dict[SandboxProfile, deque[_Ready]] = {}
        self._unwanted: deque[WaitingSandbox] = deque()
        self._wanted: dict[SandboxProfile, float] = {}
        # Those whose program has ended. Letting go of their mounts takes the kernel a while.
        self._used: list[WaitingSandbox] = []
        # From when on that is done, so that it does not compete with what the caller does with the answer.
        self._quiet = 0.0
        self._changed = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> tuple[WaitingSandbox, ...]:
        return tuple(each.sandbox for kept in self._ready.values() for each in kept)

    def take(self, wanted: SandboxProfile) -> WaitingSandbox | None:
        """One that waits, which is the caller's from now on."""
        kept = self._ready.get(wanted)
        return kept.popleft().sandbox if kept else None

    def put_back(self, wanted: SandboxProfile, sandbox: WaitingSandbox) -> None:
        """One that was taken and got no order."""
        if self._closed:
            self.discard(sandbox)
            return
        until = asyncio.get_running_loop().time() + limits.WARM_SECONDS
        self._ready.setdefault(wanted, deque()).append(_Ready(sandbox=sandbox, until=until))
        self._changed.set()

    def discard(self, sandbox: WaitingSandbox) -> None:
        self._unwanted.append(sandbox)
        self._changed.set()
        self._work()

    def want(self, wanted: SandboxProfile, *, after: WaitingSandbox) -> None:
        """A call of this profile ended: more will come. Builds what is missing, a moment later."""
        if self._closed:
            after.let_go()
            return
        after.close_sockets()
        self._used.append(after)
        self._quiet = asyncio.get_running_loop().time() + limits.WARM_REFILL_SECONDS
        self._work()
        self._changed.set()
        if not self._enabled:
            return
        self._ready[wanted] = self._ready.pop(wanted, deque())
        self._wanted.setdefault(wanted, asyncio.get_running_loop().time() + limits.WARM_REFILL_SECONDS)

    async def close(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker
        left = self.waiting
        self._ready.clear()
        for sandbox in (*left, *self._unwanted):
            await self._end(sandbox)
        self._unwanted.clear()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        while self._used:
            self._used.pop().let_go()

    def _work(self) -> None:
        if self._worker is None and not self._closed:
            self._worker = asyncio.get_running_loop().create_task(self._working())

    async def _working(self) -> None:
        """One thing after the other: building sandboxes is never what keeps this machine busy."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            self._expire(now)
            if len(self._used) > _HELD_AFTER_USE or (self._used and not self._wanted and self._quiet <= now):
                await asyncio.to_thread(self._let_go)
            if self._unwanted:
                await self._ended(self._unwanted[0])
            elif due := [profile for profile, when in self._wanted.items() if when <= now]:
                await self._built(due[-1])
            else:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._next(now)):
                        await self._changed.wait()

    def _next(self, now: float) -> float:
        times = [*self._wanted.values(), *(kept[0].until for kept in self._ready.values() if kept)]
        times += [self._quiet] if self._used and not self._wanted else []
        return min(times, default=now + limits.WARM_SECONDS)

    def _expire(self, now: float) -> None:
        for profile, kept in list(self._ready.items()):
            while kept and kept[0].until <= now:
                self._unwanted.append(kept.popleft().sandbox)
            if not kept and profile not in self._wanted:
                del self._ready[profile]
        while len(self.waiting) > limits.MAX_WARM:
            oldest = next(kept for kept in self._ready.values() if kept)
            self._unwanted.append(oldest.popleft().sandbox)

    async def _ended(self, sandbox: WaitingSandbox) -> None:
        await asyncio.shield(self._end(sandbox))
        if sandbox in self._unwanted:
            self._unwanted.remove(sandbox)

    async def _built(self, profile: SandboxProfile) -> None:
        if len(self._ready.get(profile, ())) >= limits.WARM_PER_PROFILE:
            del self._wanted[profile]
            return
        try:
            sandbox = await self._build(profile)
        except PalyraError:
            # The next call of this profile meets the same problem, and tells its caller.
            self._wanted.pop(profile, None)
            return
        self.put_back(profile, sandbox)


# Sandboxes in which a process waits for its program: built for a call, or ahead of the next one, by the same steps.
#
# Where no such process can wait (another processor, a kernel that executes no memory files) the runner lets
# bubblewrap wait instead.

_MACHINE: Final = platform.machine()


class BuiltAhead:
    """One per event loop."""

    def __init__(
        self, launcher: Launcher, cgroups: CgroupPool, namespace_sockets: NamespaceSockets, *, enabled: bool
    ) -> None:
        self._launcher = launcher
        self._namespace_sockets = namespace_sockets
        self._cgroups = cgroups
        self._pool = WarmPool(self._build_unasked, self._end_unused, enabled=enabled)

    @property
    def waiting(self) -> tuple[WaitingSandbox, ...]:
        """Those that wait for a call."""
        return self._pool.waiting

    async def close(self) -> None:
        await self._pool.close()

    async def serves(self) -> bool:
        """Whether a process can wait in a sandbox here."""
        return await self._launcher.runs_native()

    def take(self, profile: SandboxProfile) -> WaitingSandbox | None:
        """One for this profile, which the caller must compare with the workspace as it is now before it is used."""
        return None if profile.tier is SandboxTier.B else self._pool.take(sandbox_part(profile))

    def not_used(
        self, profile: SandboxProfile, taken: WaitingSandbox | None, used: WaitingSandbox | None, *, refused: bool
    ) -> None:
        """What becomes of one that was taken: it goes back if the call was refused, and ends if it is out of date."""
        if taken is None or taken is used:
            return
        if refused:
            self._pool.put_back(sandbox_part(profile), taken)
        else:
            self._pool.discard(taken)

    def used(self, profile: SandboxProfile, sandbox: WaitingSandbox) -> None:
        """Its program has ended. The next call of this profile is got ready for."""
        self._pool.want(sandbox_part(profile), after=sandbox)

    def builds_at_once(self, profile: SandboxProfile) -> bool:
        """Whether one for this profile would be begun without waiting for anything."""
        return profile.tier is SandboxTier.C and self._launcher.known_native

    async def begin(self, profile: SandboxProfile, facts: Facts, group: Group) -> BegunSandbox:
        """Begins one for a call that is waiting. ``built`` gives it, or ``end`` ends it."""
        return await begin(self._launcher, _plan_waiting(sandbox_part(profile), facts, group.limits_memory), group)

    async def built(self, begun: BegunSandbox) -> WaitingSandbox:
        try:
            return await begun.built(self._namespace_sockets)
        except NotBuilt as error:
            said = error.details.get("said") or error.message
            raise RuntimeFailure(f"the sandbox could not be built: {said}") from error

    async def _build_unasked(self, profile: SandboxProfile) -> WaitingSandbox:
        facts, group = await asyncio.to_thread(self._look, profile)
        try:
            sandbox = await self.built(await self.begin(profile, facts, group))
            sandbox.hide()
        except BaseException:
            await asyncio.shield(asyncio.to_thread(group.release))
            raise
        return sandbox

    def _look(self, profile: SandboxProfile) -> tuple[Facts, Group]:
        workspace, _ = gather_workspace(profile)
        facts = Facts(host=gather_host(), workspace=workspace, seccomp=filter_of(profile))
        return facts, self._cgroups.take(profile.limits)

    async def _end_unused(self, sandbox: WaitingSandbox) -> None:
        await sandbox.end()
        await asyncio.to_thread(sandbox.group.release)


@lru_cache(maxsize=64)
def _plan_waiting(part: SandboxProfile, facts: Facts, memory_is_counted: bool) -> BubblewrapPlan:
    return plan_isolated(part, WAITS_INSIDE, facts, memory_is_counted=memory_is_counted)


def filter_of(profile: SandboxProfile) -> bytes:
    """Abstract unix sockets belong to the network namespace: one that is shared would show the host's own."""
    strict = profile.egress is EgressEnforcementMode.STRICT
    return build_tier_c_filter(_MACHINE) if strict else build_tier_b_filter(_MACHINE)


@lru_cache(maxsize=64)
def _environment(env: tuple[tuple[str, str], ...], cwd: str) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((os.fsencode(name), os.fsencode(value)) for name, value in {**dict(env), "PWD": cwd}.items())


def program_inside(profile: SandboxProfile, checked: Checked) -> LaunchSpec:
    """What the process that waits in a sandbox is to become. The limits and the filter are in force for it already."""
    return LaunchSpec(
        argv=checked.argv,
        executable=os.fsencode(checked.executable.found),
        # A caller's own variables are remembered nowhere.
        env=(_environment.__wrapped__ if checked.env else _environment)(environment_of(profile), checked.cwd),
        cwd=os.fsencode(checked.cwd),
        no_new_privs=False,
        new_session=False,
    )


@contextlib.contextmanager
def spawn_failed(command: ProcessCommand) -> Iterator[None]:
    try:
        yield
    except LaunchFailed as error:
        if error.details.get("stage") == LaunchStage.MOUNTS:
            raise RuntimeFailure(f"the sandbox could not be built: {error.message}") from error
        raise SpawnFailed(f"{command.command} could not be started: {error.message}", **error.details) from error
