"""Files of policies: those shipped and the operator's are read into a bundle. Policies are checked elsewhere."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from importlib import resources
from pathlib import Path
from typing import BinaryIO, Final

from palyra.errors import InvalidInput, LimitExceeded, Unavailable
from palyra.policy.bundle import SCHEMA_NAME, Bundle
from palyra.policy.limits import (
    MAX_BUNDLE_BYTES,
    MAX_POLICY_FILE_BYTES,
    MAX_POLICY_FILES,
    WATCH_DEBOUNCE_MS,
    WATCH_RECHECK_MS,
)
from palyra.policy.request import EntityDirectory

DEFAULTS_PREFIX: Final = "defaults/"
_DEFAULT_POLICIES: Final = ("baseline.cedar",)
_SUFFIX: Final = ".cedar"


class PolicyFileRefused(InvalidInput):
    code = "policy.file_refused"
    hint = "policy files are regular UTF-8 files inside the policy directory"


class PolicyFileTooLarge(LimitExceeded):
    code = "policy.file_too_large"
    hint = "split the policies over several files"


class PolicyDirectoryMissing(Unavailable):
    code = "policy.directory_missing"
    hint = "create the directory, or name another with policy.dir"


def load_bundle(policy_dir: Path | None, directory: EntityDirectory, *, must_exist: bool = False) -> Bundle:
    """Read the shipped schema and baseline, then the operator's ``*.cedar`` files in the order of their names.

    Skip hidden files, where editors keep half-written copies. A directory that does not exist has no policies, unless
    it ``must_exist``.
    """
    files = [(DEFAULTS_PREFIX + name, _default(name)) for name in _DEFAULT_POLICIES]
    if policy_dir is not None:
        files.extend(_operator_files(policy_dir, must_exist=must_exist))
    return Bundle(
        schema=_default(SCHEMA_NAME),
        files=tuple(files),
        directory=directory,
        schema_name=DEFAULTS_PREFIX + SCHEMA_NAME,
    )


def _default(name: str) -> str:
    return resources.files("palyra.policy").joinpath("defaults", name).read_text(encoding="utf-8")


def _operator_files(policy_dir: Path, *, must_exist: bool) -> Iterator[tuple[str, str]]:
    try:
        names = sorted(os.listdir(policy_dir))
    except FileNotFoundError as error:
        if must_exist:
            raise PolicyDirectoryMissing(f"there is no directory {policy_dir}") from error
        return
    except OSError as error:
        raise PolicyFileRefused(f"{policy_dir} cannot be read: {error.strerror}") from error
    chosen = [name for name in names if name.endswith(_SUFFIX) and not name.startswith(".")]
    if len(chosen) > MAX_POLICY_FILES:
        raise PolicyFileTooLarge(f"{policy_dir} holds {len(chosen)} policy files, more than {MAX_POLICY_FILES}")
    total = 0
    for name in chosen:
        content = _read(policy_dir, name)
        total += len(content)
        if total > MAX_BUNDLE_BYTES:
            raise PolicyFileTooLarge(f"the files of {policy_dir} are together larger than {MAX_BUNDLE_BYTES} bytes")
        yield name, _text(policy_dir / name, content)


def _read(policy_dir: Path, name: str) -> bytes:
    """Read one file. A link may stay inside the directory, as mounted configuration does, but not lead out of it."""
    path = policy_dir / name
    try:
        real = os.path.realpath(path, strict=True)
        root = os.path.realpath(policy_dir, strict=True)
        if os.path.commonpath((real, root)) != root:
            raise PolicyFileRefused(f"{path} is a link out of the policy directory")
        # Do not follow a last link or wait for a FIFO's writer: another process may have put one there since.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with _regular(path, descriptor) as file:
            content = file.read(MAX_POLICY_FILE_BYTES + 1)
    except OSError as error:
        raise PolicyFileRefused(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_POLICY_FILE_BYTES:
        raise PolicyFileTooLarge(f"{path} is larger than {MAX_POLICY_FILE_BYTES} bytes")
    return content


def _regular(path: Path, descriptor: int) -> BinaryIO:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise PolicyFileRefused(f"{path} is not a regular file")


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyFileRefused(f"{path}, line {line}: byte {content[error.start]:#04x} is not UTF-8") from error


async def watch_directory(path: Path) -> AsyncIterator[None]:
    """Yield after each burst of changes, and when the directory appears, disappears or is replaced.

    A yield is a hint: the caller loads the directory again and compares digests.
    """
    from watchfiles import awatch

    while True:
        watched = _identity(path)
        if watched is None:
            await asyncio.sleep(WATCH_RECHECK_MS / 1000)
            if _identity(path) is not None:
                yield
            continue
        since_before = True
        try:
            # Without the regular wake-up, a deleted directory would leave the watch asleep for ever.
            async for changes in awatch(
                path, debounce=WATCH_DEBOUNCE_MS, rust_timeout=WATCH_RECHECK_MS, yield_on_timeout=True
            ):
                # The watch works now, but does not report changes made while it was being set up.
                if changes or since_before:
                    since_before = False
                    yield
                if _identity(path) != watched:
                    break
        except OSError:
            # The directory was removed before the watch began.
            pass
        if _identity(path) != watched:
            yield


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
