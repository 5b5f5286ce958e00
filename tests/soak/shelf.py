"""Files that calls wrote, out of the workspace again: a workspace with more of them than go to a worker would end the
load on workers, and a faster machine makes more. Each stays for a while, through faults, before it is put away."""

import threading
from collections import deque
from pathlib import Path

# Written files that are in the workspace at once: a few faults' worth.
MOST_IN_USE = 64


class Shelf:
    """``folder`` is on the disk of the workspace. What is not as its call made it stays where it is, for the judge."""

    def __init__(self, workspace: Path, folder: Path) -> None:
        self.workspace = workspace
        self.folder = folder
        self.away: set[str] = set()
        self._in_use: deque[tuple[str, str]] = deque()
        self._lock = threading.Lock()

    def place(self, name: str) -> Path:
        """Where the file is now."""
        return self.folder / Path(name).name if name in self.away else self.workspace / name

    def written(self, name: str, content: str) -> None:
        """Of a story that has ended: no call for this file is under way."""
        with self._lock:
            self._in_use.append((name, content))
            for _ in range(len(self._in_use) - MOST_IN_USE):
                oldest = self._in_use.popleft()
                try:
                    self._put_away(*oldest)
                except FileNotFoundError:
                    continue
                except OSError:
                    # The disk is full: later.
                    self._in_use.append(oldest)

    def _put_away(self, name: str, content: str) -> None:
        path = self.workspace / name
        if path.read_bytes() == content.encode():
            path.rename(self.folder / path.name)
            self.away.add(name)
