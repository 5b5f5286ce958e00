"""Probes of what is installed and where state will live."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from palyra.doctor.report import Finding, missing, ok, warn
from palyra.limits import JOURNAL_DISK_RESERVE_BYTES, MIB

MIN_PYTHON: Final = (3, 11)
# RETURNING and upserts as the journal's tables use them.
MIN_SQLITE: Final = (3, 35, 0)
# A day of a busy daemon's journal, roughly.
COMFORTABLE_FREE_BYTES: Final = 512 * MIB
# 2026-01-01: no Palyra was running before.
EARLIEST_SANE_SECONDS: Final = 1_767_225_600
CLOCK_SLACK_SECONDS: Final = 120
COMMAND_TIMEOUT_SECONDS: Final = 10


def python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    shown = ".".join(map(str, version))
    if version < MIN_PYTHON:
        return missing(f"Python {shown}", f"install Python {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer")
    return ok(f"Python {shown}")


def bubblewrap() -> Finding:
    program = shutil.which("bwrap")
    if program is None:
        return missing("no bwrap on the PATH", "apt install bubblewrap")
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return missing(f"{program} does not run: {error}", "apt install --reinstall bubblewrap")
    return ok(f"{answer.stdout.strip()} at {program}")


def state_directory(path: Path) -> Finding:
    """Check that the folder is private, ours, and has room, or that it can be made."""
    if not path.exists():
        parent = nearest_existing(path)
        if not os.access(parent, os.W_OK | os.X_OK):
            return missing(f"{path} does not exist and {parent} is not writable", "choose another with --state-dir")
        return _with_room(parent, f"{path} will be made when first needed")
    status = path.lstat()
    if not path.is_dir() or path.is_symlink():
        return missing(f"{path} is not a directory of its own", "choose another with --state-dir")
    if status.st_uid != os.geteuid():
        return missing(f"{path} belongs to uid {status.st_uid}", "choose another with --state-dir")
    if status.st_mode & 0o077:
        return missing(f"{path} is open to others (mode {status.st_mode & 0o7777:04o})", f"chmod 700 {path}")
    return _with_room(path, f"{path} is private")


def _with_room(folder: Path, evidence: str) -> Finding:
    free = shutil.disk_usage(folder).free
    shown = f"{evidence}, {free // MIB} MiB free"
    if free < 2 * JOURNAL_DISK_RESERVE_BYTES:
        return missing(shown, "free some space: nothing runs unrecorded, so a full disk stops every call")
    if free < COMFORTABLE_FREE_BYTES:
        return warn(shown, "free some space: the journal only grows")
    return ok(shown)


def durable_writes(path: Path) -> Finding:
    """Write and sync a file and its folder where the journal will be."""
    parent = nearest_existing(path)
    try:
        with tempfile.NamedTemporaryFile(dir=parent, prefix=".palyra-doctor-") as file:
            file.write(b"durable?")
            file.flush()
            os.fsync(file.fileno())
            folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        return missing(f"fsync in {parent} fails: {error.strerror}", "choose a local file system with --state-dir")
    return ok(f"a file and its folder were synced in {parent}")


def sqlite(path: Path) -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        wanted = ".".join(map(str, MIN_SQLITE))
        return missing(f"SQLite {version}", f"use a Python linked to SQLite {wanted} or newer")
    parent = nearest_existing(path)
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=".palyra-doctor-") as folder:
            connection = sqlite3.connect(Path(folder) / "probe.db")
            try:
                (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
                connection.execute("CREATE TABLE probe (x)")
                connection.commit()
            finally:
                connection.close()
    except (OSError, sqlite3.Error) as error:
        return missing(f"SQLite {version} cannot write in {parent}: {error}", "choose another place with --state-dir")
    if mode != "wal":
        return missing(f"SQLite {version}, but WAL is not possible in {parent}", "choose a local file system")
    return ok(f"SQLite {version} with WAL in {parent}")


def clock(path: Path, now: float | None = None) -> Finding:
    """Check that the clock is neither before this program existed nor before the last write on disk."""
    seconds = time.time() if now is None else now
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    if seconds < EARLIEST_SANE_SECONDS:
        return missing(f"the clock says {shown}", "set the clock; approvals and tokens expire by it")
    newest = nearest_existing(path).stat().st_mtime
    if newest > seconds + CLOCK_SLACK_SECONDS:
        behind = int(newest - seconds)
        return warn(f"the clock says {shown}, {behind} s before the last write to {path}", "set the clock")
    return ok(f"the clock says {shown}")


def nearest_existing(path: Path) -> Path:
    """Return the path itself if it is a folder, else the closest folder above it."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
