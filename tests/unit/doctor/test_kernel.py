"""Probes of the kernel, against this kernel and against machines described by files."""

import ctypes
import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from palyra.doctor import kernel
from palyra.doctor.report import Status


class Libc:
    """Answers system calls as a kernel of the test's choice would."""

    def __init__(self, result: int, error: int = 0) -> None:
        self.result, self.error = result, error

    def syscall(self, *_: Any) -> int:
        ctypes.set_errno(self.error)
        return self.result

    prctl = syscall


def test_openat2_works_here_and_refuses_to_climb() -> None:
    assert kernel.openat2().status is Status.OK


def test_a_kernel_without_openat2_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_libc", Libc(-1, errno.ENOSYS))
    found = kernel.openat2()
    assert found.status is Status.MISSING
    assert os.strerror(errno.ENOSYS) in found.evidence


def test_an_openat2_that_lets_paths_climb_out_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_openat2", lambda folder, path, how: 0)
    found = kernel.openat2()
    assert found.status is Status.MISSING
    assert "climb out" in found.evidence


@pytest.mark.parametrize(
    ("libc", "status", "says"),
    [
        (Libc(-1, errno.EOPNOTSUPP), Status.MISSING, os.strerror(errno.EOPNOTSUPP)),
        (Libc(3), Status.WARN, "ABI 3"),
        (Libc(4), Status.OK, "ABI 4"),
    ],
)
def test_landlock_is_judged_by_its_abi(monkeypatch: pytest.MonkeyPatch, libc: Libc, status: Status, says: str) -> None:
    monkeypatch.setattr(kernel, "_libc", libc)
    found = kernel.landlock()
    assert (found.status, says in found.evidence) == (status, True)
    assert bool(found.fix) == (status is not Status.OK)


def test_seccomp_needs_the_call_and_filters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t2\n")
    assert kernel.seccomp(status).evidence.endswith("(this process has 2)")
    status.write_text("Name:\tx\nSeccomp:\t0\n")
    assert kernel.seccomp(status).status is Status.MISSING
    monkeypatch.setattr(kernel, "_libc", Libc(-1, errno.EINVAL))
    assert kernel.seccomp(status).status is Status.MISSING


def _unshare(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> None:
    def run(command: list[str], **_: Any) -> Any:
        assert command[0] == "unshare"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(subprocess, "run", run)


def test_user_namespaces_are_made_to_know(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _unshare(monkeypatch, subprocess.CompletedProcess([], 0, "", ""))
    assert kernel.user_namespaces(tmp_path).status is Status.OK
    _unshare(monkeypatch, FileNotFoundError())
    assert kernel.user_namespaces(tmp_path).status is Status.WARN
    _unshare(monkeypatch, subprocess.TimeoutExpired("unshare", 1))
    assert kernel.user_namespaces(tmp_path).status is Status.MISSING


@pytest.mark.parametrize(
    ("switch", "value", "fix"),
    [
        ("unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    ],
)
def test_a_forbidden_user_namespace_names_the_switch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, switch: str, value: str, fix: str
) -> None:
    _unshare(monkeypatch, subprocess.CompletedProcess([], 1, "", "unshare: write failed: Operation not permitted\n"))
    assert "Operation not permitted" in kernel.user_namespaces(tmp_path).evidence
    (tmp_path / switch).write_text(f"{value}\n")
    found = kernel.user_namespaces(tmp_path)
    assert (found.status, found.fix) == (Status.MISSING, fix)
    (tmp_path / switch).write_text("1\n" if value == "0" else "0\n")
    assert "Operation not permitted" in kernel.user_namespaces(tmp_path).evidence


def _unified(tmp_path: Path, controllers: str) -> tuple[Path, Path]:
    mount, membership = tmp_path / "cgroup", tmp_path / "membership"
    (mount / "mine").mkdir(parents=True)
    (mount / "cgroup.controllers").write_text("cpu memory pids io\n")
    (mount / "mine" / "cgroup.controllers").write_text(controllers)
    membership.write_text("0::/mine\n")
    return mount, membership


@pytest.mark.parametrize(
    ("controllers", "status"),
    [("cpu io memory pids\n", Status.OK), ("memory\n", Status.WARN), ("", Status.MISSING)],
)
def test_unified_cgroups_are_judged_by_what_is_delegated(tmp_path: Path, controllers: str, status: Status) -> None:
    found = kernel.cgroups(*_unified(tmp_path, controllers))
    assert found.status is status
    assert "v2" in found.evidence


def test_a_group_that_is_not_writable_is_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = _unified(tmp_path, "cpu memory pids\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert kernel.cgroups(*places).status is Status.MISSING


def test_legacy_cgroups_are_found_per_controller(tmp_path: Path) -> None:
    membership = tmp_path / "membership"
    membership.write_text("3:cpu,cpuacct:/x\n2:memory:/x\n1:pids:/x\n")
    for name in ("cpu", "memory"):
        (tmp_path / name / "x").mkdir(parents=True)
    found = kernel.cgroups(tmp_path, membership)
    assert (found.status, found.evidence) == (Status.WARN, "cgroup v1: only cpu, memory writable")
    (tmp_path / "pids" / "x").mkdir(parents=True)
    assert kernel.cgroups(tmp_path, membership).status is Status.OK


def test_no_proc_means_no_cgroups(tmp_path: Path) -> None:
    assert kernel.cgroups(tmp_path, tmp_path / "absent").status is Status.MISSING
