"""Files for a page are put where the browser can read them, under plain names and within their room."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from palyra.browser.domain.action import Upload
from palyra.browser.domain.page_errors import UploadRefused
from palyra.browser.engine.browser_folders import UploadFolder

T = TypeVar("T")


class Folder:
    def __init__(self, path: Path, problem: int = 0) -> None:
        self._path = path
        self._problem = problem

    @property
    def uploads(self) -> Path:
        return self._path

    def inside(self, path: Path) -> str:
        return f"/uploads/{path.relative_to(self._path)}"

    async def as_browser(self, work: Callable[[], T]) -> T:
        if self._problem:
            raise OSError(self._problem, "no")
        return work()


async def test_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    folder = UploadFolder(Folder(tmp_path))
    same = [Upload(name="a.txt", content=b"1"), Upload(name="a.txt", content=b"2")]
    assert await folder.put(same) == ["/uploads/1-0/a.txt", "/uploads/1-1/a.txt"]
    assert await folder.put(same[:1]) == ["/uploads/2-0/a.txt"]
    assert (tmp_path / "1-1/a.txt").read_bytes() == b"2"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", "a\nb", "x" * 201])
async def test_a_name_is_never_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(UploadRefused):
        await UploadFolder(Folder(tmp_path)).put([Upload(name=name, content=b"")])
    assert not list(tmp_path.iterdir())


@pytest.mark.promise("P-limits")
async def test_too_many_and_too_large(tmp_path: Path) -> None:
    with pytest.raises(UploadRefused, match="at most"):
        await UploadFolder(Folder(tmp_path)).put([Upload(name="a", content=b"")] * 33)
    with pytest.raises(UploadRefused, match="more room"):
        await UploadFolder(Folder(tmp_path, errno.ENOSPC)).put([Upload(name="a", content=b"")])
    with pytest.raises(UploadRefused, match="could not be put"):
        await UploadFolder(Folder(tmp_path, errno.EACCES)).put([Upload(name="a", content=b"")])
