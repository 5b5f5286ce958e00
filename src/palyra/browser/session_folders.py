"""A folder for what each session keeps on disk while it lasts: its downloads. Nothing of it outlives the session."""

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from palyra.errors import Unavailable

_MODE: Final = 0o700


class FoldersUnusable(Unavailable):
    code = "browser.folders_unusable"
    hint = "check the space and the permissions of the browser daemon's state directory"


class SessionFolders:
    """Blocks on the disk. One daemon has it at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            root.mkdir(mode=_MODE, parents=True, exist_ok=True)
            status = os.lstat(root)
        except OSError as problem:
            raise FoldersUnusable(f"cannot use {root}: {problem.strerror}") from problem
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise FoldersUnusable(f"{root} is not a folder of the daemon's own")
        root.chmod(_MODE)

    def of(self, session_id: str) -> Path:
        return self._root / session_id

    def remove(self, session_id: str) -> None:
        self._remove(self.of(session_id))

    def collect(self) -> int:
        """What a daemon that was killed left: sessions do not outlive their daemon. Says how many folders that were."""
        left = sorted(self._root.iterdir())
        for path in left:
            self._remove(path)
        return len(left)

    def _remove(self, path: Path) -> None:
        try:
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
            else:
                shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise FoldersUnusable(f"cannot remove {path}: {problem.strerror}") from problem
