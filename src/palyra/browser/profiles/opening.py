"""The keys of profiles and their store, as the browser daemon opens them.

Keys come from the environment, or else from a file of the daemon's own, made at the first use.
"""

import base64
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from palyra.browser.domain.profile import ProfileKeyBad
from palyra.browser.profiles.encryption import KEY_BYTES, VARIABLE, StateKeys, parse_keys
from palyra.browser.profiles.store import ProfileStore
from palyra.errors import PalyraError
from palyra.vault.key_file import read_private

_MAX_FILE_BYTES: Final = 1_024
_MODE: Final = 0o600
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def state_keys(environ: Mapping[str, str], path: Path, profiles: Path) -> StateKeys:
    """Read the keys. They may not be inside ``profiles``: they would travel with every copy of it."""
    raw = environ.get(VARIABLE, "")
    if raw.strip():
        return parse_keys(raw, VARIABLE)
    if Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(profiles)):
        raise ProfileKeyBad(f"{path} is inside the folder that it opens")
    if not os.path.lexists(path):
        _create(path)
    return parse_keys(_read(path), str(path))


def _create(path: Path) -> None:
    """Create the file completely or not at all: half a key would be another key."""
    content = base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(beside, _CREATE, _MODE)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            # A link, and not a rename: another daemon's key that came first stays.
            os.link(beside, path, follow_symlinks=False)
        except FileExistsError:
            pass
        finally:
            os.unlink(beside)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ProfileKeyBad(f"cannot make {path}: {error.strerror}") from error


def _read(path: Path) -> str:
    try:
        raw = read_private(path, _MAX_FILE_BYTES)
    except PalyraError as unsafe:
        raise ProfileKeyBad(unsafe.message) from unsafe
    if raw is None or not raw.isascii():
        raise ProfileKeyBad(f"{path} is not a file of keys")
    return raw.decode("ascii")


log = logging.getLogger("palyra.browserd")


def open_profiles(
    folder: Path, key_file: Path, environ: Mapping[str, str], *, now_ms: Callable[[], int]
) -> ProfileStore:
    """Open the store, log its findings, and put every state under the first key. This blocks on the disk."""
    keys = state_keys(environ, key_file, folder)
    store = ProfileStore(folder, keys, now_ms=now_ms)
    try:
        for each in store.findings:
            log.warning("browser profiles: %s: %s", each.found.value.replace("_", " "), each.file)
        if keys.older:
            rotated = store.rotate()
            log.info("browser profiles: %d states were put under the newest key", len(rotated.sealed))
            for profile_id in rotated.damaged:
                log.warning("browser profiles: the state of %s did not verify, and stays under its old key", profile_id)
    except BaseException:
        store.close()
        raise
    return store
