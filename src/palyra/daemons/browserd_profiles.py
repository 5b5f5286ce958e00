"""The browser daemon's profiles as it opens them: what was found amiss is told, and the newest key takes over."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from palyra.browser.profile_key_file import state_keys
from palyra.browser.profile_store import ProfileStore

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
