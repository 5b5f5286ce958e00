"""What the machine can do: tried for real here, and told with a fix where it cannot."""

from pathlib import Path

import msgspec

from palyra.doctor import sandbox_layers
from palyra.doctor.sandbox_layers import cgroups, examine, held_host, mount_point_note
from palyra.sandbox.domain.facts import HostHold
from palyra.sandbox.domain.profile import Layer
from palyra.sandbox.layers.bubblewrap import gather_host


def test_this_machine_gives_what_tier_c_needs() -> None:
    found = examine()
    for layer in (Layer.USER_NAMESPACE, Layer.PID_NAMESPACE, Layer.NETWORK_NAMESPACE, Layer.SECCOMP):
        capability = found.of(layer)
        assert capability is not None
        assert capability.usable, capability.evidence
    assert sandbox_layers.probe() is sandbox_layers.probe()


def test_a_bubblewrap_that_fails_is_evidence(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    found = sandbox_layers.namespaces(msgspec.structs.replace(gather_host(), bwrap=str(broken)))
    assert not any(each.usable for each in found)
    assert "No permissions" in found[0].evidence
    assert found[0].fix


def test_the_switch_that_forbids_namespaces_is_named(tmp_path: Path) -> None:
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel/unprivileged_userns_clone").write_text("0\n")
    assert sandbox_layers._namespace_fix(str(tmp_path)) == "sysctl kernel.unprivileged_userns_clone=1"


def test_control_groups_of_both_versions_and_none(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory:/a\n3:pids:/a\n2:cpu,cpuacct:/a\n0::/x\n")
    (tmp_path / "memory/a").mkdir(parents=True)
    one = {each.layer: each.usable for each in cgroups(str(tmp_path), str(membership))}
    assert one == {Layer.CGROUP_MEMORY: True, Layer.CGROUP_PIDS: False, Layer.CGROUP_CPU: False}
    membership.write_text("0::/user\n")
    (tmp_path / "user").mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "user/cgroup.controllers").write_text("memory pids\n")
    two = {each.layer: each.usable for each in cgroups(str(tmp_path), str(membership))}
    assert two == {Layer.CGROUP_MEMORY: True, Layer.CGROUP_PIDS: True, Layer.CGROUP_CPU: False}
    assert not any(each.usable for each in cgroups(str(tmp_path / "no"), str(tmp_path / "no")))


def test_versions_before_the_fix_are_pointed_out() -> None:
    assert "0.12" in mount_point_note((0, 8, 0))
    assert mount_point_note((0, 12, 1)) == ""


def test_a_host_that_cannot_be_held_read_only_is_told_with_a_fix() -> None:
    host = gather_host()
    assert held_host(host).usable
    lacking = held_host(msgspec.structs.replace(host, hold=HostHold.MISSING))
    assert not lacking.usable
    assert "5.12" in lacking.fix
