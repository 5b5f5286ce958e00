"""The folders that a browser can write, reached from outside, and files for a page's file input.

The folders are file systems in memory inside the browser's mount namespace. A descriptor holds each of them, so they
outlive the browser's processes until they were archived, and go with the daemon however it ends.
"""

import asyncio
import ctypes
import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from palyra.browser.domain.action import Upload
from palyra.browser.domain.limits import MAX_UPLOAD_NAME_BYTES, MAX_UPLOADS
from palyra.browser.domain.page_errors import UploadRefused
from palyra.browser.engine.launch_plan import DOWNLOADS, PROFILE, UPLOADS, Account

T = TypeVar("T")

_HELD: Final = (PROFILE, DOWNLOADS, UPLOADS)
_libc: Final = ctypes.CDLL(None, use_errno=True)


class BrowserFiles:
    """Holds the folders until ``close``. They are then gone unless the browser still runs."""

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
        self.profile, self.downloads, self.uploads = self._paths.values()

    def inside(self, path: Path) -> str:
        for inside, outside in self._paths.items():
            if path.is_relative_to(outside):
                return f"{inside}/{path.relative_to(outside)}"
        raise ValueError("the path is in none of the browser's folders")

    async def as_browser(self, work: Callable[[], T]) -> T:
        """Run work in a thread with the browser's account: root could not make files in these file systems."""
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
    """Take on an account for file access of this thread. The kernel drops root's power over files with it."""
    _libc.setfsgid(account.gid)
    _libc.setfsuid(account.uid)
    if _libc.setfsuid(-1) != account.uid:  # an impossible uid changes nothing and returns the present one
        raise PermissionError("the browser's account could not be taken on")


# One kind of link is followed: `/proc/<pid>/fd/<n>` of this process names a folder of a running browser, and leads to
# nothing but the folder that was opened before.

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DESCRIPTOR: Final = re.compile(r"/proc/([1-9][0-9]*)/fd/(?:0|[1-9][0-9]*)")


@contextmanager
def open_folder(path: Path | bytes, beneath: int | None = None) -> Iterator[int]:
    descriptor = os.open(_named(path), _DIRECTORY, dir_fd=beneath)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _named(path: Path | bytes) -> str | bytes:
    if isinstance(path, bytes):
        return path
    held = _DESCRIPTOR.fullmatch(str(path))
    # The dot is then the last name, and links before the last name are followed.
    return f"{path}/." if held and int(held[1]) == os.getpid() else str(path)


class UploadFolder:
    """Makes a new folder for each upload: a page may read a file long after it was chosen."""

    def __init__(self, files: BrowserFiles) -> None:
        self._files = files
        self._given = 0

    async def put(self, uploads: Sequence[Upload]) -> list[str]:
        if len(uploads) > MAX_UPLOADS:
            raise UploadRefused(f"at most {MAX_UPLOADS} files at once")
        names = [_name(each.name) for each in uploads]
        self._given += 1
        number = self._given

        def write() -> list[Path]:
            written = []
            for at, (name, upload) in enumerate(zip(names, uploads, strict=True)):
                # One folder for each, since two may have one name.
                folder = self._files.uploads / f"{number}-{at}"
                folder.mkdir(mode=0o700)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
                with os.fdopen(os.open(folder / name, flags, 0o600), "wb") as file:
                    file.write(upload.content)
                written.append(folder / name)
            return written

        try:
            paths = await self._files.as_browser(write)
        except OSError as problem:
            if problem.errno in (errno.ENOSPC, errno.EDQUOT):
                raise UploadRefused("the files of this session take more room than there is") from problem
            raise UploadRefused(f"the files could not be put there: {problem.strerror}") from problem
        return [self._files.inside(path) for path in paths]


def _name(name: str) -> str:
    bad = not name or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable()
    if bad or len(name.encode()) > MAX_UPLOAD_NAME_BYTES:
        raise UploadRefused(f"{name[:60]!r} is no plain file name")
    return name
