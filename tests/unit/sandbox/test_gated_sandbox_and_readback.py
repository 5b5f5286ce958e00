"""The look at a waiting sandbox: it starts when it was looked at, and in no other case."""

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from fakes.isolated import planned, profile_of, run, start, wait_for_description
from palyra.sandbox.domain.facts import HostHold
from palyra.sandbox.domain.plan import plan_isolated
from palyra.sandbox.domain.profile import Layer
from palyra.sandbox.launch.gated_sandbox import Gate, GatedReadback, release_checked
from palyra.sandbox.verify.readback import NotBuilt, namespace_number


def test_every_layer_is_read_back(tmp_path: Path) -> None:
    ran = run(profile_of(tmp_path), ["/bin/sh", "-c", "sleep 0.1; echo out"])
    assert (ran.code, ran.out) == (0, "out\n")
    unheld = [line for line in ran.receipt.lines if not line.held]
    assert unheld == []
    layers = {line.layer for line in ran.receipt.lines}
    assert layers >= {Layer.SECCOMP, Layer.CAPABILITIES, Layer.MINIMAL_ROOT, Layer.RLIMITS, Layer.NESTED_USERNS_OFF}
    filtered = ran.receipt.line(Layer.SECCOMP)
    assert filtered is not None
    assert "Seccomp 2" in filtered.got


async def test_the_description_comes_on_an_event_loop_too(tmp_path: Path) -> None:
    plan = planned(profile_of(tmp_path), ["/usr/bin/true"])
    with Gate() as gate:
        process = start(plan, gate)
        with GatedReadback(await gate.describe()) as waiting:
            release_checked(plan, gate, waiting)
        assert process.wait(timeout=20) == 0
        process.communicate()


def test_a_crash_of_ours_does_not_start_the_program(tmp_path: Path) -> None:
    plan = planned(profile_of(tmp_path), ["/usr/bin/touch", str(tmp_path / "ran")])
    gate = Gate()
    process = start(plan, gate)
    info = wait_for_description(gate)
    with GatedReadback(info) as waiting:
        waiting.settle()
        gate.close()
        # bubblewrap takes the end of a pipe for leave to go on; it would be through within a few milliseconds.
        time.sleep(0.1)
        assert process.poll() is None
        assert not (tmp_path / "ran").exists()
        os.kill(waiting.pid, signal.SIGKILL)
    process.communicate(timeout=20)
    assert not (tmp_path / "ran").exists()


def test_a_sandbox_that_cannot_be_built_is_told(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, tool_roots=(str(tmp_path / "tools"),))
    facts = planned(profile, ["/usr/bin/true"]).facts
    # Where bubblewrap itself meets what is missing.
    unheld = msgspec.structs.replace(facts, host=msgspec.structs.replace(facts.host, hold=HostHold.MISSING))
    plan = plan_isolated(profile, (b"/usr/bin/true",), unheld)
    with Gate() as gate:
        process = start(plan, gate)
        with pytest.raises(NotBuilt), GatedReadback(wait_for_description(gate)) as waiting:
            release_checked(plan, gate, waiting)
        _, err = process.communicate(timeout=20)
    assert b"bwrap" in err


async def test_silence_ends_at_the_deadline() -> None:
    with Gate() as gate, pytest.raises(NotBuilt):
        await gate.describe(0.01)
    with Gate() as gate:
        gate.hand_over()
        with pytest.raises(NotBuilt):
            await gate.describe(1)


def test_a_process_outside_the_named_namespaces_is_not_believed() -> None:
    with pytest.raises(NotBuilt):
        GatedReadback({"child-pid": os.getpid(), "mnt-namespace": 1})
    with pytest.raises(NotBuilt):
        GatedReadback({"child-pid": 2**22 + 1})


def test_namespace_numbers() -> None:
    assert namespace_number("mnt:[4026531840]") == 4026531840


def test_the_way_to_its_network_is_that_networks_owner(tmp_path: Path) -> None:
    """The sandbox's own user namespace lies within the one that owns the network, and has no power over it."""
    plan = planned(profile_of(tmp_path), ["/usr/bin/true"])
    with Gate() as gate:
        process = start(plan, gate)
        with GatedReadback(wait_for_description(gate)) as waiting:
            waiting.settle()
            with waiting.network() as (network, owner):
                seen = waiting.evidence(plan)
                assert os.fstat(network).st_ino == seen.namespaces["net"]
                assert os.fstat(owner).st_ino == seen.outer_users[0] != seen.namespaces["user"]
            assert waiting.routes() == ()
            release_checked(plan, gate, waiting)
        process.communicate(timeout=20)


def test_a_network_other_than_the_one_that_was_named_is_not_believed() -> None:
    with GatedReadback({"child-pid": os.getpid(), "net-namespace": 1}) as waiting:
        with pytest.raises(NotBuilt, match="no network of its own"), waiting.network():
            pass
        # This process has the host's routes, where it has any.
        assert all(" over " in route for route in waiting.routes())
