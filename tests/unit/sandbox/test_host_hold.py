import os
from pathlib import Path

import pytest

from palyra.sandbox.domain.facts import HostHold
from palyra.sandbox.layers import bubblewrap


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
