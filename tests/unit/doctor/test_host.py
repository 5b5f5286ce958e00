"""Probes of the host: what is installed and where state would live."""

import os
import shutil
import sqlite3
from collections import namedtuple
from pathlib import Path

import pytest

from palyra.doctor import host
from palyra.doctor.report import Status
from palyra.limits import MIB

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 10_000 * MIB))


@pytest.mark.parametrize(
    ("version", "status"),
    [((3, 10, 14), Status.MISSING), ((3, 11, 0), Status.OK), ((3, 14, 1), Status.OK), ((2, 7, 18), Status.MISSING)],
)
def test_python_must_be_recent(version: tuple[int, ...], status: Status) -> None:
    assert host.python(version).status is status


def _program(folder: Path, text: str) -> None:
    file = folder / "bwrap"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_bubblewrap_is_asked_for_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.bubblewrap().fix == "apt install bubblewrap"
    _program(tmp_path, "echo bubblewrap 0.8.0")
    found = host.bubblewrap()
    assert (found.status, found.evidence) == (Status.OK, f"bubblewrap 0.8.0 at {tmp_path / 'bwrap'}")
    _program(tmp_path, "exit 1")
    assert host.bubblewrap().status is Status.MISSING


@pytest.mark.usefixtures("roomy")
def test_a_state_directory_must_be_private_or_makeable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a" / "state"
    assert host.state_directory(path).status is Status.OK
    assert not path.parent.exists()
    path.mkdir(parents=True, mode=0o700)
    assert "is private" in host.state_directory(path).evidence
    path.chmod(0o750)
    found = host.state_directory(path)
    assert (found.status, found.fix) == (Status.MISSING, f"chmod 700 {path}")
    path.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert host.state_directory(link).status is Status.MISSING
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert "belongs to uid" in host.state_directory(path).evidence


@pytest.mark.usefixtures("roomy")
def test_one_that_cannot_be_made_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = host.state_directory(tmp_path / "a" / "state")
    assert found.status is Status.MISSING
    assert str(tmp_path) in found.evidence


@pytest.mark.parametrize(("free", "status"), [(1, Status.MISSING), (100, Status.WARN), (1000, Status.OK)])
def test_free_space_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: Status) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free * MIB))
    found = host.state_directory(tmp_path / "state")
    assert found.status is status
    assert f"{free} MiB free" in found.evidence


def test_durable_writes_and_sqlite_work_here_and_leave_nothing(tmp_path: Path) -> None:
    assert host.durable_writes(tmp_path / "state").status is Status.OK
    found = host.sqlite(tmp_path / "state")
    assert found.status is Status.OK
    assert sqlite3.sqlite_version in found.evidence
    assert os.listdir(tmp_path) == []


def test_a_disk_that_cannot_sync_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fails)
    found = host.durable_writes(tmp_path)
    assert found.status is Status.MISSING
    assert "Invalid argument" in found.evidence


def test_an_old_sqlite_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    assert host.sqlite(tmp_path).status is Status.MISSING


def test_a_file_system_without_wal_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda _: real(":memory:"))
    found = host.sqlite(tmp_path)
    assert found.status is Status.MISSING
    assert "WAL is not possible" in found.evidence


def test_the_clock_is_compared_with_the_program_and_with_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir()
    later = host.EARLIEST_SANE_SECONDS + 1_000_000
    os.utime(path, (later, later))
    assert host.clock(path, now=later + 5.0).status is Status.OK
    assert host.clock(path, now=later - 3600.0).status is Status.WARN
    assert "3600 s before" in host.clock(path, now=later - 3600.0).evidence
    assert host.clock(path, now=0.0).status is Status.MISSING


def test_the_nearest_folder_is_found_upwards(tmp_path: Path) -> None:
    assert host.nearest_existing(tmp_path / "a" / "b") == tmp_path
    assert host.nearest_existing(tmp_path) == tmp_path
    (tmp_path / "file").touch()
    assert host.nearest_existing(tmp_path / "file") == tmp_path
