"""Where the daemon gets the keys of profiles: the environment, or else a file of its own, made at the first use."""

import base64
import logging
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from palyra.browser.domain.profile import ProfileKeyBad
from palyra.browser.profiles.encryption import KEY_BYTES, VARIABLE, StateKeys, parse_keys
from palyra.browser.profiles.store import ProfileStore

_MAX_FILE_BYTES: Final = 1_024
_MODE: Final = 0o600
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def state_keys(environ: Mapping[str, str], path: Path, profiles: Path) -> StateKeys:
    """``profiles`` is the folder that the keys open: a key inside it would travel with every copy."""
    raw = environ.get(VARIABLE, "")
    if raw.strip():
        return parse_keys(raw, VARIABLE)
    if Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(profiles)):
        raise ProfileKeyBad(f"{path} is inside the folder that it opens")
    if not os.path.lexists(path):
        _create(path)
    return parse_keys(_read(path), str(path))


def _create(path: Path) -> None:
    """Whole or not at all: half a key in place would be another key."""
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
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ProfileKeyBad(f"cannot open {path}: {error.strerror}") from error
    try:
        # Judged on what is open: a name can be given to another file between a look and an open.
        status = os.fstat(descriptor)
        others = status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or others or status.st_nlink != 1:
            raise ProfileKeyBad(f"{path} is not a file that is the daemon's alone (mode 0600, one name)")
        raw = os.read(descriptor, _MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(raw) > _MAX_FILE_BYTES or not raw.isascii():
        raise ProfileKeyBad(f"{path} is not a file of keys")
    return raw.decode("ascii")


# The browser daemon's profiles as it opens them: what was found amiss is told, and the newest key takes over.

log = logging.getLogger("palyra.browserd")


def open_profiles(
    folder: Path, key_file: Path, environ: Mapping[str, str], *, now_ms: Callable[[], int]
) -> ProfileStore:
    """Blocks on the disk. With several keys, all that is kept is put under the first; the others may go after that."""
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
