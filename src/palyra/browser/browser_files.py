"""The folders that a browser can write, reached from outside, and files put there as if it had made them.

They are file systems in memory inside its mount namespace. Each is held by a descriptor, so it outlives the browser's
processes until it was archived, and goes with the daemon however that ends.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

from palyra.browser.chromium_plan import Account
from palyra.browser.flags import DOWNLOADS, PROFILE, UPLOADS

T = TypeVar("T")

_HELD: Final = (PROFILE, DOWNLOADS, UPLOADS)
_libc: Final = ctypes.CDLL(None, use_errno=True)


class BrowserFiles:
    """``close`` gives them up: what is in them is gone unless the browser still runs."""

    def __init__(self, first: int, account: Account) -> None:
        self._account = account
        self._opened = ExitStack()
        self._paths: dict[str, Path] = {}
        try:
            for inside in _HELD:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
                descriptor = os.open(f"/proc/{first}/root{inside}", flags)
                self._opened.callback(os.close, descriptor)
                self._paths[inside] = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        except BaseException:
            self._opened.close()
            raise

    @property
    def profile(self) -> Path:
        return self._paths[PROFILE]

    @property
    def downloads(self) -> Path:
        return self._paths[DOWNLOADS]

    @property
    def uploads(self) -> Path:
        return self._paths[UPLOADS]

    def inside(self, path: Path) -> str:
        """What the browser calls a path beneath one of them."""
        for inside, outside in self._paths.items():
            if path.is_relative_to(outside):
                return f"{inside}/{path.relative_to(outside)}"
        raise ValueError("the path is in none of the browser's folders")

    async def as_browser(self, work: Callable[[], T]) -> T:
        """Runs work in a thread that makes files as the browser's account.

        Root's own could not be made there at all: the file system knows no other owner.
        """
        if not self._account.dropped:
            return await asyncio.to_thread(work)
        pool = ThreadPoolExecutor(1, "browser-files", initializer=_become, initargs=(self._account,))
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        finally:
            # The thread ends with its work; it is never given other work under that account.
            pool.shutdown(wait=False)

    def close(self) -> None:
        self._opened.close()


def _become(account: Account) -> None:
    """For file access of this thread alone. The kernel gives up root's power over files with it."""
    _libc.setfsgid(account.gid)
    _libc.setfsuid(account.uid)
    if _libc.setfsuid(-1) != account.uid:  # an impossible uid changes nothing and tells the present one
        raise PermissionError("the browser's account could not be taken on")
