"""The watch over git's own files while a program runs, and the look at all protected names after it.

Git's files are writable, since ordinary commands write them, and are judged after the call. A program that goes on for
hours must not keep a harmful one in force until then. So those of the repositories that were there are looked at a few
times a second, and what could run a program is undone at once.

A note beside a call that goes on says what was there before. It is left behind only where this process dies first, and
then tells the next one what appeared. Nothing is moved then: a person may have made it since.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from palyra.errors import PalyraError
from palyra.sandbox.domain.facts import Names, ProtectedChange
from palyra.sandbox.domain.profile import NewProtectedPolicy, SandboxProfile
from palyra.sandbox.layers.protected_mounts import open_workspace_root
from palyra.sandbox.layers.workspace_scan import Found, WorkspaceScan, look_at
from palyra.sandbox.limits import MAX_UNDONE, MAX_WATCHED, WATCH_SECONDS
from palyra.sandbox.running_process import Running
from palyra.sandbox.verify.protected_changes import MovingAside, ProtectedChanges, judge_found, look_again
from palyra.workspace.protected_table import REPOSITORY_JUDGED, REPOSITORY_PATTERN
from palyra.workspace.root import hold

log = logging.getLogger("palyra.sandbox")

_Signature = tuple[int, int, int, int] | None
_GIT: Names = (b".git",)
RUNNING_NOTE: Final = "running-"


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    profile: SandboxProfile
    found: list[Found]
    scan: WorkspaceScan


def _write_note(scratch: str, profile: SandboxProfile, before: WorkspaceScan) -> tuple[int, str]:
    """Write the note and keep it locked. Without room for it the call goes on without one."""
    # No value of the environment or of a file of the call's is kept.
    kept = SandboxProfile(workspace_root=profile.workspace_root, protected_names=profile.protected_names)
    scan = msgspec.structs.replace(before, found={})
    content = msgspec.msgpack.encode(_Note(profile=kept, found=list(before.found.values()), scan=scan))
    try:
        file, path = tempfile.mkstemp(prefix=RUNNING_NOTE, dir=scratch)
    except OSError:
        return -1, ""
    fcntl.flock(file, fcntl.LOCK_EX)
    with contextlib.suppress(OSError):
        os.write(file, content)
    return file, path


def find_lost(scratch: str) -> Iterator[tuple[str, ProtectedChanges]]:
    """Look, without a change, at the workspaces of calls whose process died. Each is found once."""
    for name in os.listdir(scratch):
        if not name.startswith(RUNNING_NOTE):
            continue
        with contextlib.suppress(OSError, msgspec.MsgspecError, PalyraError), open(f"{scratch}/{name}", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(f"{scratch}/{name}")
            note = msgspec.msgpack.decode(file.read(), type=_Note)
            before = msgspec.structs.replace(note.scan, found={each.names: each for each in note.found})
            yield note.profile.workspace_root, look_again(note.profile, before)


class ProtectedWatch:
    """One call's. ``over`` watches while the program runs, ``finish`` looks at everything once."""

    def __init__(self, profile: SandboxProfile, before: WorkspaceScan, scratch: str) -> None:
        self._profile = profile
        self._before = before
        self._scratch = scratch
        self._folder = ""
        self._undone: tuple[ProtectedChange, ...] = ()
        self._places = self._find_places() if self._is_wanted() else ()
        self._seen: dict[Names, _Signature] = {}
        self._note: tuple[int, str] = (-1, "")

    def _is_wanted(self) -> bool:
        moves = self._profile.appearing_protected is NewProtectedPolicy.MOVE_ASIDE
        return moves and REPOSITORY_PATTERN in self._profile.protected_names

    def _find_places(self) -> tuple[Names, ...]:
        """Return what git reads in the repositories that are there, and in one that may appear at the root."""
        git_files = (each.names for each in self._before.found.values() if each.judged or each.content is not None)
        folders = {_GIT} | {names[:-1] for names in git_files if names[1:]}
        places = {_GIT: None} | {(*folder, name): None for folder in sorted(folders) for name in REPOSITORY_JUDGED}
        sealed = {names for names, each in self._before.found.items() if each.sealed}
        return tuple(names for names in places if names not in sealed)[:MAX_WATCHED]

    @asynccontextmanager
    async def over(self, running: Running) -> AsyncIterator[None]:
        """Watch while the block runs. A program that ends sooner than the first look costs nothing."""
        stop = asyncio.Event()
        watching: list[asyncio.Task[None]] = []

        def begin() -> None:
            watching.append(asyncio.create_task(self._watch(running, stop), name="protected names"))

        timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, begin)
        try:
            yield
        finally:
            timer.cancel()
            stop.set()
            for task in watching:
                # Not cancelled: its thread may be moving a file at this moment.
                await asyncio.shield(asyncio.wait([task]))
                if error := task.exception():
                    # The look after the end comes all the same.
                    log.error("the watch over git's files ended early", exc_info=error)

    async def _watch(self, running: Running, stop: asyncio.Event) -> None:
        await asyncio.to_thread(self.write_note)
        while self._places and len(self._undone) < MAX_UNDONE:
            if stop.is_set() or running.child.ended:
                return
            await asyncio.to_thread(self._look)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), WATCH_SECONDS)
        if self._places:
            await running.kill("protected_names")

    def write_note(self) -> None:
        """Leave word of what was there, for the next process if this one dies."""
        self._note = _write_note(self._scratch, self._profile, self._before)

    def _look(self) -> None:
        with contextlib.suppress(OSError, PalyraError), hold(open_workspace_root(self._profile.workspace_root)) as root:
            changed = [names for names in self._places if self._differs(root, names)]
            found = [each for names in changed if (each := look_at(root, names, REPOSITORY_PATTERN)) is not None]
            changes = tuple(
                change
                for each in found
                if each.judged and (change := judge_found(root, self._before, each)) is not None and not change.harmless
            )
            if changes:
                moving = MovingAside(root, self._profile.workspace_root, self._before, self._make_aside, self._undone)
                self._folder, done = moving.move(changes)
                self._undone += done

    def _differs(self, root: int, names: Names) -> bool:
        signature: _Signature = None
        with contextlib.suppress(OSError):
            status = os.stat(b"/".join(names), dir_fd=root, follow_symlinks=False)
            if names == _GIT and stat.S_ISDIR(status.st_mode):
                return False
            signature = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        was = self._seen.get(names)
        self._seen[names] = signature
        return signature != was

    def _make_aside(self) -> str:
        self._folder = self._folder or tempfile.mkdtemp(prefix="aside-", dir=self._scratch)
        return self._folder

    def forget(self) -> None:
        """Remove the note. The call is over, or never began."""
        (file, path), self._note = self._note, (-1, "")
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(file)

    def finish(self) -> ProtectedChanges:
        """Look at the whole workspace after the last process has ended, and add what was undone before."""
        try:
            changes = look_again(self._profile, self._before, aside=self._make_aside, earlier=self._undone)
        finally:
            self.forget()
        if self._folder:
            with contextlib.suppress(OSError):
                # It stays if something was moved into it.
                os.rmdir(self._folder)
        if not self._undone:
            return changes
        folder = changes.folder or self._folder
        return msgspec.structs.replace(changes, changes=(*self._undone, *changes.changes), folder=folder)
