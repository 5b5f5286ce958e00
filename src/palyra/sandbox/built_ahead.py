"""Sandboxes in which a process waits for its program: built for a call, or ahead of the next one, by the same steps.

Where no such process can wait (another processor, a kernel that executes no memory files) the runner lets bubblewrap
wait instead.
"""

import asyncio
import contextlib
import os
import platform
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from palyra.sandbox.bubblewrap import gather_host
from palyra.sandbox.cgroup import CgroupPool
from palyra.sandbox.cgroup_group import Group
from palyra.sandbox.checks import Checked
from palyra.sandbox.command import ProcessCommand
from palyra.sandbox.host_facts import Facts
from palyra.sandbox.launch import LaunchFailed, LaunchSpec, LaunchStage
from palyra.sandbox.launcher import Launcher
from palyra.sandbox.namespace_sockets import NamespaceSockets
from palyra.sandbox.outcome import RuntimeFailure, SpawnFailed
from palyra.sandbox.plan import WAITS_INSIDE, BubblewrapPlan, environment_of, plan_isolated
from palyra.sandbox.profile import EgressEnforcementMode, SandboxProfile, SandboxTier
from palyra.sandbox.protected_mounts import gather_workspace
from palyra.sandbox.readback import NotBuilt
from palyra.sandbox.seccomp_program import tier_b_program, tier_c_program
from palyra.sandbox.waiting_sandbox import BegunSandbox, WaitingSandbox, begin
from palyra.sandbox.warm_pool import WarmPool, sandbox_part

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
    return tier_c_program(_MACHINE) if strict else tier_b_program(_MACHINE)


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
