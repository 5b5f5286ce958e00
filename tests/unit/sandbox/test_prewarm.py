"""The pool with sandboxes that are none. Real ones are in tests/security/test_warm_sandbox_attacks.py."""

import asyncio
from typing import Any, cast

import pytest

from fakes.eventually import eventually
from palyra.errors import Failed
from palyra.sandbox import limits
from palyra.sandbox.domain.profile import SandboxLimits, SandboxProfile
from palyra.sandbox.launch.built_sandbox import PrewarmedSandbox
from palyra.sandbox.launch.prewarm import Prewarm, sandbox_part

PROFILE = SandboxProfile(workspace_root="/work/space")


class Harness:
    def __init__(self, **options: Any) -> None:
        self.built: list[SandboxProfile] = []
        self.ended: list[object] = []
        self.broken = False
        self.pool = Prewarm(self._build, self._end, **options)

    async def _build(self, profile: SandboxProfile) -> PrewarmedSandbox:
        self.built.append(profile)
        if self.broken:
            raise Failed("it cannot be built")
        return cast("PrewarmedSandbox", object())

    async def _end(self, sandbox: PrewarmedSandbox) -> None:
        self.ended.append(sandbox)

    def call(self, profile: SandboxProfile = PROFILE) -> None:
        self.pool.refill(profile)


async def test_nothing_is_built_before_a_call_and_a_few_after_it() -> None:
    harness = Harness()
    assert harness.pool.take(PROFILE) is None
    await asyncio.sleep(0.05)
    assert harness.built == []
    harness.call()
    await eventually(lambda: len(harness.pool.waiting) == limits.WARM_PER_PROFILE)
    assert harness.pool.take(SandboxProfile(workspace_root="/other")) is None
    first = harness.pool.take(PROFILE)
    assert first is not None and first not in harness.pool.waiting
    await harness.pool.close()
    assert first not in harness.ended and len(harness.ended) == limits.WARM_PER_PROFILE - 1
    assert harness.pool.waiting == ()


async def test_those_of_profiles_that_were_not_used_for_long_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WARM", 3)
    harness = Harness()
    profiles = [SandboxProfile(workspace_root=f"/work/{number}") for number in range(4)]
    for profile in profiles:
        harness.call(profile)
        await eventually(lambda: not harness.pool._wanted)
    await eventually(lambda: len(harness.pool.waiting) == 3)
    assert harness.pool.take(profiles[0]) is None and harness.pool.take(profiles[3]) is not None
    await harness.pool.close()


async def test_one_that_waited_for_too_long_is_ended_and_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WARM_SECONDS", 0.05)
    harness = Harness()
    harness.call()
    await eventually(lambda: len(harness.ended) == limits.WARM_PER_PROFILE)
    await asyncio.sleep(0.1)
    assert len(harness.built) == limits.WARM_PER_PROFILE and harness.pool.waiting == ()
    await harness.pool.close()


async def test_what_cannot_be_built_is_not_tried_for_ever() -> None:
    harness = Harness()
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
    off = Harness(enabled=False)
    off.call()
    await asyncio.sleep(0.05)
    assert off.built == []
    await off.pool.close()
    closed = Harness()
    await closed.pool.close()
    closed.call()
    assert closed.built == []
    closed.pool.put_back(PROFILE, cast("PrewarmedSandbox", object()))
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
