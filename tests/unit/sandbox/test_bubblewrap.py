"""Finding bubblewrap, what the host has, and the order to the launcher."""

import os
from pathlib import Path

import pytest

from fakes.isolation_plan import plan
from palyra.sandbox.domain.facts import HostHold
from palyra.sandbox.domain.launch_spec import CgroupEntry
from palyra.sandbox.domain.profile import UnsupportedPlatform
from palyra.sandbox.layers import bubblewrap
from palyra.sandbox.layers.bubblewrap import find_bubblewrap, gather_host, to_launch_spec


def test_a_missing_or_writable_program_is_refused_with_the_way_to_get_it(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o777)
    with pytest.raises(UnsupportedPlatform) as refused:
        find_bubblewrap((str(fake), str(tmp_path / "none")))
    assert "apt install bubblewrap" in refused.value.hint
    fake.chmod(0o755)
    assert find_bubblewrap((str(fake),)) == str(fake)


def test_the_host_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    host = gather_host()
    assert host is gather_host()
    assert host.bwrap_version >= (0, 8)
    assert {"--unshare-user", "--disable-userns", "--block-fd", "--info-fd"} <= host.bwrap_options
    assert (host.uid, host.gid) == (os.geteuid(), os.getegid())
    assert "/etc/shadow" not in host.etc_paths
    assert all(os.path.exists(path) for path in host.etc_paths)
    assert {path for path, _ in host.root_links} | set(host.root_directories) >= {"/bin", "/lib"}


def test_the_launcher_starts_bubblewrap_with_nothing_of_ours() -> None:
    made = plan()
    spec = to_launch_spec(made, cgroup=CgroupEntry(v1=("/sys/fs/cgroup/x",)))
    assert (spec.env, spec.cwd, spec.seccomp, spec.landlock) == ((), b"/", None, None)
    assert (spec.argv, spec.data_fds, spec.pass_fds) == (made.argv, made.data_fds, (16, 17))
    assert spec.no_new_privs
    assert "NPROC" not in {limit.name for limit in spec.rlimits}


def test_this_machine_can_hold_the_host(tmp_path: Path) -> None:
    wanted = HostHold.MOUNT_NAMESPACE if os.geteuid() == 0 else HostHold.USER_NAMESPACE
    assert bubblewrap.find_hold(str(tmp_path / "none")) is wanted


@pytest.mark.parametrize(
    ("sets_mounts", "administers", "apparmor", "hold"),
    [
        (False, True, "0", HostHold.MISSING),
        (True, True, "1", HostHold.MOUNT_NAMESPACE),
        (True, False, "1", HostHold.MISSING),
        (True, False, "0", HostHold.USER_NAMESPACE),
    ],
)
def test_what_is_missing_is_found(
    sets_mounts: bool,
    administers: bool,
    apparmor: str,
    hold: HostHold,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "switch").write_text(apparmor + "\n")
    monkeypatch.setattr(bubblewrap, "_kernel_sets_mounts", lambda: sets_mounts)
    monkeypatch.setattr(bubblewrap, "_administers", lambda: administers)
    assert bubblewrap.find_hold(str(tmp_path / "switch")) is hold


def test_another_processor_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    assert bubblewrap.find_hold() is HostHold.MISSING
