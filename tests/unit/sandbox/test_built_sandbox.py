"""How a sandbox that waits is built and told of. What it withstands is in tests/security."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fakes.foreign_sockets import foreign_sockets
from palyra.sandbox.domain.facts import Facts
from palyra.sandbox.domain.launch_spec import LaunchFailed, LaunchSpec
from palyra.sandbox.domain.plan import WAITS_INSIDE, BubblewrapPlan, plan_isolated
from palyra.sandbox.domain.profile import Layer, SandboxProfile, UnsupportedPlatform
from palyra.sandbox.launch.built_sandbox import PrewarmedSandbox, build_planned
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.layers.cgroup import CgroupPool
from palyra.sandbox.network.call_network import NamespaceSockets
from palyra.sandbox.runner import gather_facts
from palyra.sandbox.verify.readback import NotBuilt


def facts_of(profile: SandboxProfile) -> Facts:
    return gather_facts(profile)[0]


def planned(place: Path, **changes: object) -> BubblewrapPlan:
    profile = SandboxProfile(workspace_root=str(place), protected_names=(".env",), **changes)  # type: ignore[arg-type]
    return plan_isolated(profile, WAITS_INSIDE, facts_of(profile))


@pytest.fixture
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as started:
        yield started
        assert not started.running


async def built(launcher: Launcher, plan: BubblewrapPlan) -> PrewarmedSandbox:
    namespace_sockets = NamespaceSockets()
    try:
        group = CgroupPool(hierarchies=()).take(plan.profile.limits)
        return await build_planned(launcher, plan, group, namespace_sockets)
    finally:
        await namespace_sockets.close()


async def test_the_sockets_of_its_door_are_there_before_its_call(launcher: Launcher, tmp_path: Path) -> None:
    sandbox = await built(launcher, planned(tmp_path, allowed_egress_hosts=("a.example:8443",)))
    line = sandbox.receipt.line(Layer.EGRESS)
    assert line is not None and line.held and "transparent 0.0.0.0:8443" in line.got
    assert sandbox.sockets is not None and len(foreign_sockets()) == 4
    await sandbox.end()
    assert foreign_sockets() == []
    sandbox = await built(launcher, planned(tmp_path))
    assert sandbox.sockets is None
    await sandbox.end()


async def test_it_waits_is_read_and_becomes_its_program(launcher: Launcher, tmp_path: Path) -> None:
    sandbox = await built(launcher, planned(tmp_path))
    assert sandbox.waits and sandbox.serves(facts_of(sandbox.plan.profile))
    line = sandbox.receipt.line(Layer.SECCOMP)
    assert line is not None and line.held
    assert all(each.held for each in sandbox.receipt.lines if each.layer in sandbox.plan.profile.required_layers)
    sandbox.hide()
    reader, writer = os.pipe()
    words = LaunchSpec(argv=(b"any name", b"-c", b"echo $0 $A; pwd"), executable=b"/bin/sh", env=((b"A", b"b"),))
    with open(os.devnull, "rb") as nothing:
        inside = msgspec.structs.replace(words, cwd=os.fsencode(tmp_path), no_new_privs=False, new_session=False)
        receipt = await sandbox.start(inside, (nothing.fileno(), writer, writer))
    os.close(writer)
    ended = await sandbox.child.wait()
    assert (ended.exit_code, os.read(reader, 1000)) == (0, f"any name b\n{tmp_path}\n".encode())
    os.close(reader)
    environment = receipt.line(Layer.ENVIRONMENT)
    assert environment is not None and environment.asked.startswith("1 variables")
    assert not sandbox.waits
    sandbox.close()


async def test_a_program_that_cannot_be_executed(launcher: Launcher, tmp_path: Path) -> None:
    for spec, stage in (
        (LaunchSpec(argv=(b"/nonexistent",), no_new_privs=False, new_session=False), "exec"),
        (LaunchSpec(argv=(b"/bin/true",), cwd=b"/nonexistent", new_session=False), "working_directory"),
    ):
        sandbox = await built(launcher, planned(tmp_path))
        with open(os.devnull, "r+b") as nothing, pytest.raises(LaunchFailed) as failed:
            await sandbox.start(spec, (nothing.fileno(),) * 3)
        assert failed.value.details["stage"] == stage
        await sandbox.end()


async def test_facts_that_are_others_are_not_served(launcher: Launcher, tmp_path: Path) -> None:
    sandbox = await built(launcher, planned(tmp_path))
    (tmp_path / ".env").touch()
    assert not sandbox.serves(facts_of(sandbox.plan.profile))
    (tmp_path / ".env").unlink()
    assert sandbox.serves(facts_of(sandbox.plan.profile))
    await sandbox.end()
    assert not sandbox.serves(facts_of(sandbox.plan.profile))


async def test_what_bubblewrap_says_is_told_and_nothing_is_left(launcher: Launcher, tmp_path: Path) -> None:
    plan = planned(tmp_path)
    options = dict(plan.data_fds)
    broken = msgspec.structs.replace(plan, data_fds=tuple({**options, 9: b"--no-such-option\0"}.items()))
    with pytest.raises(NotBuilt) as problem:
        await built(launcher, broken)
    assert "--no-such-option" in problem.value.details["said"]
    missing = msgspec.structs.replace(plan, argv=(b"/nonexistent/bwrap", *plan.argv[1:]))
    with pytest.raises(LaunchFailed):
        await built(launcher, missing)


async def test_a_layer_that_did_not_hold_refuses_it(launcher: Launcher, tmp_path: Path) -> None:
    plan = planned(tmp_path)
    facts = msgspec.structs.replace(plan.facts, seccomp=None)
    without = plan_isolated(plan.profile, WAITS_INSIDE, facts)
    with pytest.raises(UnsupportedPlatform) as refused:
        await built(launcher, without)
    assert refused.value.details["layers"] == [Layer.SECCOMP]


async def test_giving_up_while_it_is_built(launcher: Launcher, tmp_path: Path) -> None:
    for step in range(8):
        building = asyncio.ensure_future(built(launcher, planned(tmp_path)))
        await asyncio.sleep(step * 0.002)
        building.cancel()
        await asyncio.wait([building])
        if not building.cancelled():
            await building.result().end()
