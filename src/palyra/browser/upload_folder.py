"""Files for a page's file input, put into the folder that the browser can read."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from palyra.browser.action import Upload
from palyra.browser.element_errors import UploadRefused
from palyra.browser.page_limits import MAX_UPLOAD_NAME_BYTES, MAX_UPLOADS

T = TypeVar("T")


class FolderOfBrowser(Protocol):
    """`browser_files.BrowserFiles` is it."""

    @property
    def uploads(self) -> Path: ...

    def inside(self, path: Path) -> str: ...

    async def as_browser(self, work: Callable[[], T]) -> T: ...


class UploadFolder:
    """Each time a new folder within: a page may read a file long after it was chosen, until the session ends."""

    def __init__(self, files: FolderOfBrowser) -> None:
        self._files = files
        self._given = 0

    async def put(self, uploads: Sequence[Upload]) -> list[str]:
        """The paths as the browser knows them."""
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
    """What the page sees as the file's name: never a path."""
    bad = not name or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable()
    if bad or len(name.encode()) > MAX_UPLOAD_NAME_BYTES:
        raise UploadRefused(f"{name[:60]!r} is no plain file name")
    return name
