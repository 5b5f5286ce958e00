"""Tells when something changed in the policy directory, whether or not the directory exists yet."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from palyra.policy.limits import WATCH_DEBOUNCE_MS, WATCH_RECHECK_MS


async def watch_directory(path: Path) -> AsyncIterator[None]:
    """Yields after each burst of changes, and when the directory appears, disappears or is replaced.

    A yield is a hint: the reader loads the directory anew and compares digests.
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
                # The watch stands: what changed while it was being set up nobody else would ever tell.
                if changes or since_before:
                    since_before = False
                    yield
                if _identity(path) != watched:
                    break
        except OSError:
            # The directory went away between looking at it and watching it.
            pass
        if _identity(path) != watched:
            yield


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
