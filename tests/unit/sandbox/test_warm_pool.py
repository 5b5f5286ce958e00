"""The pool with sandboxes that are none. Real ones are in tests/security/test_warm_sandbox_attacks.py."""

import asyncio
from typing import Any, cast

import pytest

from fakes.eventually import eventually
from palyra.errors import Failed
from palyra.sandbox import limits
from palyra.sandbox.domain.profile import SandboxLimits, SandboxProfile
from palyra.sandbox.launch.built_sandbox import WaitingSandbox
from palyra.sandbox.launch.prewarm import WarmPool, sandbox_part

PROFILE = SandboxProfile(workspace_root="/work/space")


class Fake:
    def __init__(self) -> None:
        self.closed = self.gone = False

    def close_sockets(self) -> None:
        self.closed = True

    def let_go(self) -> None:
        self.gone = True


class GatewayHarness:
    def __init__(self, **options: Any) -> None:
        self.built: list[SandboxProfile] = []
        self.ended: list[object] = []
        self.broken = False
        self.pool = WarmPool(self._build, self._end, **options)

    async def _build(self, profile: SandboxProfile) -> WaitingSandbox:
        self.built.append(profile)
        if self.broken:
            raise Failed("it cannot be built")
        return cast("WaitingSandbox", Fake())

    async def _end(self, sandbox: WaitingSandbox) -> None:
        self.ended.append(sandbox)

    def call(self, profile: SandboxProfile = PROFILE) -> Fake:
        used = Fake()
        self.pool.want(profile, after=cast("WaitingSandbox", used))
        return used


async def test_nothing_is_built_before_a_call_and_a_few_after_it() -> None:
    harness = GatewayHarness()
    assert harness.pool.take(PROFILE) is None
    await asyncio.sleep(0.05)
    assert harness.built == []
    used = harness.call()
    await eventually(lambda: len(harness.pool.waiting) == limits.WARM_PER_PROFILE)
    await eventually(lambda: used.gone)
    assert used.closed and harness.pool.take(SandboxProfile(workspace_root="/other")) is None
    first = harness.pool.take(PROFILE)
    assert first is not None and first not in harness.pool.waiting
    await harness.pool.close()
    assert first not in harness.ended and len(harness.ended) == limits.WARM_PER_PROFILE - 1
    assert harness.pool.waiting == ()


async def test_those_of_profiles_that_were_not_used_for_long_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WARM", 3)
    harness = GatewayHarness()
    profiles = [SandboxProfile(workspace_root=f"/work/{number}") for number in range(4)]
    for profile in profiles:
        harness.call(profile)
        await eventually(lambda: not harness.pool._wanted)
    await eventually(lambda: len(harness.pool.waiting) == 3)
    assert harness.pool.take(profiles[0]) is None and harness.pool.take(profiles[3]) is not None
    await harness.pool.close()


async def test_one_that_waited_for_too_long_is_ended_and_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WARM_SECONDS", 0.05)
    harness = GatewayHarness()
    harness.call()
    await eventually(lambda: len(harness.ended) == limits.WARM_PER_PROFILE)
    await asyncio.sleep(0.1)
    assert len(harness.built) == limits.WARM_PER_PROFILE and harness.pool.waiting == ()
    await harness.pool.close()


async def test_what_cannot_be_built_is_not_tried_for_ever() -> None:
    harness = GatewayHarness()
    harness.broken = True
    harness.call()
    await eventually(lambda: harness.built)
    await asyncio.sleep(0.05)
    assert len(harness.built) == 1
    harness.broken = False
    harness.call()
    await eventually(lambda: harness.pool.waiting)
    await harness.pool.close()


async def test_a_closed_pool_and_one_that_is_switched_off_build_nothing() -> None:
    off = GatewayHarness(enabled=False)
    used = off.call()
    await eventually(lambda: used.gone)
    assert off.built == []
    await off.pool.close()
    closed = GatewayHarness()
    await closed.pool.close()
    used = closed.call()
    assert used.gone and closed.built == []
    closed.pool.put_back(PROFILE, cast("WaitingSandbox", Fake()))
    assert closed.pool.waiting == ()


def test_what_does_not_make_another_sandbox() -> None:
    plain = sandbox_part(PROFILE)
    other = SandboxProfile(
        workspace_root="/work/space",
        env=(("A", "b"),),
        allow_interpreters=True,
        allowed_executables=("ls",),
        limits=SandboxLimits(timeout_ms=5, max_output_bytes=7),
    )
    assert sandbox_part(other) == plain
    assert sandbox_part(SandboxProfile(workspace_root="/work/space", limits=SandboxLimits(pids=9))) != plain
    assert sandbox_part(SandboxProfile(workspace_root="/work/space", read_only=True)) != plain
