"""The layers that bubblewrap builds: tried for real here, with a fix where one fails."""

from pathlib import Path

import msgspec

from palyra.doctor.report import Status
from palyra.doctor.sandbox_layers import OTHER_NAMESPACES, build_layers, namespace_fix, try_layer
from palyra.sandbox.domain.facts import HostHold
from palyra.sandbox.domain.profile import Layer
from palyra.sandbox.layers.bubblewrap import gather_host


def test_this_machine_gives_what_tier_c_needs() -> None:
    found = build_layers(*OTHER_NAMESPACES)
    assert found.status is Status.OK, found.evidence
    assert found.evidence.startswith("built: pid namespace, network namespace")


def test_a_bubblewrap_that_fails_is_evidence(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    host = msgspec.structs.replace(gather_host(), bwrap=str(broken))
    for layer in (*OTHER_NAMESPACES, Layer.NESTED_USERNS_OFF):
        found = try_layer(host, layer)
        assert found.status is Status.MISSING and "No permissions" in found.evidence and found.fix


def test_the_switch_that_forbids_namespaces_is_named(tmp_path: Path) -> None:
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel/unprivileged_userns_clone").write_text("0\n")
    assert namespace_fix(str(tmp_path)) == "sysctl kernel.unprivileged_userns_clone=1"


def test_a_host_that_cannot_be_held_read_only_gets_a_fix() -> None:
    host = gather_host()
    assert try_layer(host, Layer.HOST_READ_ONLY).status is Status.OK
    failed = try_layer(msgspec.structs.replace(host, hold=HostHold.MISSING), Layer.HOST_READ_ONLY)
    assert failed.status is Status.MISSING and "5.12" in failed.fix
