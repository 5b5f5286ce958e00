"""The folders of upstream servers: one for each principal, run, or server, as its isolation says."""

import asyncio
import contextlib
import fcntl
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from palyra.config.state_dir import DIR_MODE, StateDir
from palyra.executors.mcp_upstream.settings import CALLERS_WORKSPACE, ServerPlan
from palyra.ids import Principal
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.sandbox.layers.workspace_scan import remove_tree

# One folder for each server. Before there was an isolation, every principal's calls shared it.
SHARED: Final = "mcp"
OF_PRINCIPALS: Final = "mcp-principals"
# Below `scratch`, which no backup holds.
OF_RUNS: Final = "scratch/mcp-runs"
OF_REVIEWS: Final = "scratch/mcp-reviews"


class ServerFolders:
    def __init__(self, state: StateDir) -> None:
        self._state = state
        # The locks on folders of runs, which keep other processes from removing them.
        self._held: dict[Path, int] = {}
        self._swept = False

    def of(self, server: str, described: ServerPlan, plan: ExecutionPlan) -> Path:
        """Return the folder of the instance that this call uses, which is made if need be."""
        match described.workspace, described.isolation:
            case (str(path), _) if path == CALLERS_WORKSPACE:
                return Path(plan.workspace)
            case ("", "principal"):
                folder = self._state.path(OF_PRINCIPALS) / server / Principal.parse(plan.principal).folder
            case ("", "run"):
                return self._hold(self._state.path(OF_RUNS) / f"{server}-{plan.run_id}")
            case _:
                folder = self._own(server, described)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _hold(self, folder: Path) -> Path:
        if not self._swept:
            self._swept = True
            self._sweep(folder.parent)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder not in self._held:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._held[folder] = descriptor
        return folder

    def release(self, server: str, run_id: str) -> Callable[[], None]:
        """Take the folder away from a run whose instance has ended. The returned function removes it, and blocks.

        The run's next instance may come before that ends. It gets a new folder.
        """
        folder = self._state.path(OF_RUNS) / f"{server}-{run_id}"
        descriptor = self._held.pop(folder, None)
        if descriptor is None:
            return lambda: None
        ended = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):
            os.rename(folder, ended)

        def remove() -> None:
            _remove(ended)
            os.close(descriptor)

        return remove

    def _sweep(self, runs: Path) -> None:
        """Remove the folders that ended processes left. A living process holds a lock on each of its own."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(runs):
                with contextlib.suppress(OSError):
                    os.chmod(runs / name, DIR_MODE)
                    descriptor = os.open(runs / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        _remove(runs / name)
                    finally:
                        os.close(descriptor)

    def _own(self, server: str, described: ServerPlan) -> Path:
        return Path(described.workspace).expanduser() if described.workspace else self._state.path(SHARED) / server

    @contextlib.asynccontextmanager
    async def for_review(self, server: str, described: ServerPlan) -> AsyncIterator[Path]:
        """Give a folder to a server that is only inspected: one of nobody's, unless all share it."""
        if described.isolation == "shared" or described.workspace not in ("", CALLERS_WORKSPACE):
            folder = self._own(server, described)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield folder
            return
        scratch = self._state.path(OF_REVIEWS)
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="review-", dir=scratch))
        try:
            yield folder
        finally:
            await asyncio.shield(asyncio.to_thread(_remove, folder))

    def kept(self, server: str, described: ServerPlan) -> str:
        """Return the folder that all principals shared before, if it holds something and nobody uses it now."""
        folder = self._state.path(SHARED) / server
        with contextlib.suppress(OSError):
            if described.isolation != "shared" and any(folder.iterdir()):
                return str(folder)
        return ""


def _remove(folder: Path) -> None:
    """Remove what a server left, whatever it nested or closed."""
    with contextlib.suppress(OSError):
        os.chmod(folder, DIR_MODE)
    remove_tree(str(folder))
