"""The scratch workspace of one lease: built from its artifacts, searched after the call, removed.

Every name is opened from the descriptor of the folder above it, and links are never followed. So no path from a daemon
or a program leads out of the workspace.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from palyra.fleet import limits
from palyra.fleet.agent.lease import ArtifactDamaged, NoRoom, TooMuchLeft
from palyra.fleet.domain.lease import LeaseId
from palyra.fleet.domain.workspace_scope import ArtifactRef, OutsideScope, WorkerWorkspaceScope, require_artifacts
from palyra.fleet.limits import MAX_COUNTED
from palyra.workspace.names import WorkspacePath

_PROC: Final = Path("/proc")
# Fields of a line of mountinfo: the mounted part of its file system, and the mount point.
_ROOT: Final = 3
_PLACE: Final = 4


class Residue(NamedTuple):
    """The traces of a lease after its cleanup."""

    entries: int
    processes: int
    mounts: int

    @property
    def clean(self) -> bool:
        return not any(self)


def look(folder: Path, lease_id: str, *, proc: Path = _PROC) -> Residue:
    """Count what is left of a lease. Only its own traces have its id in a path. Blocking."""
    return Residue(
        entries=_entries(folder),
        processes=_processes(lease_id, proc),
        mounts=_named_mounts(proc / "self" / "mountinfo", lease_id),
    )


def _entries(folder: Path) -> int:
    if not os.path.lexists(folder):
        return 0
    count = 1
    for _, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count >= MAX_COUNTED:
            break
    return min(count, MAX_COUNTED)


def _processes(lease_id: str, proc: Path) -> int:
    """Count processes that work in the folder, or whose mount namespace has it, as those of a sandbox do."""
    own, found = os.getpid(), 0
    # Processes share namespaces: each one is read once.
    views: dict[str, bool] = {_link(proc / "self" / "ns" / "mnt"): False}
    for name in os.listdir(proc):
        if not name.isdigit() or int(name) == own:
            continue
        place = proc / name
        if any(lease_id in _link(place / link).split("/") for link in ("cwd", "root")):
            found += 1
            continue
        view = _link(place / "ns" / "mnt")
        if view not in views or not view:
            views[view] = _named_mounts(place / "mountinfo", lease_id) > 0
        found += views[view]
    return found


def _named_mounts(mountinfo: Path, lease_id: str) -> int:
    count = 0
    # The process ended meanwhile, or belongs to another user, as no lease of this worker does.
    with contextlib.suppress(OSError), open(mountinfo, "rb") as lines:
        wanted = lease_id.encode()
        for line in lines:
            fields = line.split(b" ")
            if len(fields) > _PLACE and any(wanted in fields[index].split(b"/") for index in (_ROOT, _PLACE)):
                count += 1
    return count


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


WORKSPACE: Final = "workspace"
# For files that the sandbox itself needs beside the workspace.
BESIDE: Final = "beside"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_PROGRAM_MODE: Final = 0o700


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a call wrote, and counts of the entries that cannot be artifacts."""

    artifacts: tuple[ArtifactRef, ...] = ()
    outside_scope: int = 0
    not_files: int = 0
    protected: int = 0


class ScratchFolder:
    """The folder of all scratch workspaces of this worker, each under its lease's id."""

    def __init__(self, root: Path, *, remove_tree: Callable[[str], None]) -> None:
        self.root = root
        self._remove_tree = remove_tree
        root.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.root))

    def make(self, lease_id: str) -> "Scratch":
        folder = self.root / LeaseId.parse(lease_id)
        os.mkdir(folder, _FOLDER_MODE)
        for name in (WORKSPACE, BESIDE):
            os.mkdir(folder / name, _FOLDER_MODE)
        return Scratch(folder)

    def remove(self, name: str) -> None:
        """Remove a folder after its call has ended. What cannot be removed stays, and ``look`` counts it."""
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            self._remove_tree(str(path))
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)


class Scratch:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / WORKSPACE
        self.beside = folder / BESIDE
        status = os.stat(self.workspace, follow_symlinks=False)
        self.identity = f"{status.st_dev:x}:{status.st_ino:x}"

    def require_room(self, inputs: tuple[ArtifactRef, ...]) -> None:
        free = os.statvfs(self.folder)
        wanted = sum(artifact.size for artifact in inputs) + limits.FREE_BYTES
        if free.f_bavail * free.f_frsize < wanted:
            raise NoRoom(f"the files of the lease need {wanted} bytes of free space")

    def make_folders(self, scope: WorkerWorkspaceScope) -> None:
        for folder in scope.folders:
            with self._folder_of(WorkspacePath.parse(folder).names):
                pass

    @contextmanager
    def lay_out(self, artifact: ArtifactRef) -> Iterator["ArtifactWriter"]:
        """Write one file. At the end of the block a file with another digest is removed."""
        names = WorkspacePath.parse(artifact.path).names
        if not names:
            raise ArtifactDamaged("an artifact is a file in the workspace, not the workspace")
        with self._folder_of(names[:-1]) as directory:
            mode = _PROGRAM_MODE if artifact.executable else _FILE_MODE
            descriptor = os.open(names[-1], _NEW_FILE, mode, dir_fd=directory)
            try:
                writer = ArtifactWriter(descriptor, artifact)
                yield writer
                writer.finish()
            except BaseException:
                os.unlink(names[-1], dir_fd=directory)
                raise
            finally:
                os.close(descriptor)

    @contextmanager
    def _folder_of(self, names: tuple[str, ...]) -> Iterator[int]:
        descriptor = os.open(self.workspace, _DIRECTORY)
        try:
            for name in names:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, _FOLDER_MODE, dir_fd=descriptor)
                inner = os.open(name, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def gather(
        self,
        inputs: tuple[ArtifactRef, ...],
        scope: WorkerWorkspaceScope,
        is_protected: Callable[[tuple[str, ...]], bool] = lambda _names: False,
    ) -> Gathered:
        """Return the files that the ended call changed or made within its scope. Blocking."""
        if scope.read_only:
            return Gathered()
        before = {WorkspacePath.parse(artifact.path).names: artifact for artifact in inputs}
        found: list[ArtifactRef] = []
        outside = not_files = protected = 0
        for names, directory, status in self._files():
            if not stat.S_ISREG(status.st_mode) or not is_text_name(names):
                not_files += 1
                continue
            made = _digested(directory, names, status)
            if made is None or made == before.get(names):
                continue
            if is_protected(names):
                protected += 1
                continue
            try:
                scope.require(made.path, write=True)
            except OutsideScope:
                outside += 1
                continue
            found.append(made)
        artifacts = tuple(sorted(found, key=lambda artifact: artifact.path))
        require_artifacts(artifacts, scope, written=True)
        return Gathered(artifacts=artifacts, outside_scope=outside, not_files=not_files, protected=protected)

    def _files(self) -> Iterator[tuple[tuple[str, ...], int, os.stat_result]]:
        """Yield every entry but folders, each with its open folder. Bounded, whatever a program built."""
        seen = 0
        levels: list[tuple[int, tuple[str, ...], list[str]]] = []
        try:
            top = os.open(self.workspace, _DIRECTORY)
            levels.append((top, (), os.listdir(top)))
            while levels:
                directory, names, left = levels[-1]
                if not left:
                    os.close(levels.pop()[0])
                    continue
                seen += 1
                if seen > limits.MAX_SCRATCH_ENTRIES or len(levels) > limits.MAX_SCRATCH_DEPTH:
                    raise TooMuchLeft(f"the call left more than {limits.MAX_SCRATCH_ENTRIES} entries, or deeper ones")
                inner = (*names, left.pop())
                status = os.stat(inner[-1], dir_fd=directory, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    yield inner, directory, status
                    continue
                try:
                    opened = os.open(inner[-1], _DIRECTORY, dir_fd=directory)
                except PermissionError:
                    # The program removed the permission, and with it these files from the result.
                    continue
                levels.append((opened, inner, os.listdir(opened)))
        finally:
            for descriptor, _, _ in levels:
                os.close(descriptor)

    @contextmanager
    def reading(self, artifact: ArtifactRef) -> Iterator[int]:
        """Open a gathered file. The receiver notices a later change by the digest."""
        names = WorkspacePath.parse(artifact.path).names
        with self._folder_of(names[:-1]) as directory:
            descriptor = os.open(names[-1], _FILE, dir_fd=directory)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class ArtifactWriter:
    """Writes the bytes of one artifact in order, up to its size."""

    def __init__(self, descriptor: int, artifact: ArtifactRef) -> None:
        self._descriptor = descriptor
        self._artifact = artifact
        self._digest = hashlib.sha256()
        self.written = 0

    def write(self, data: bytes) -> None:
        if self.written + len(data) > self._artifact.size:
            raise ArtifactDamaged(f"{self._artifact.path[:200]!r} is larger than the lease says")
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._digest.update(data)
        self.written += len(data)

    def finish(self) -> None:
        if self.written != self._artifact.size or self._digest.hexdigest() != self._artifact.digest_sha256:
            raise ArtifactDamaged(f"{self._artifact.path[:200]!r} is not what the lease names")


def _digested(directory: int, names: tuple[str, ...], status: os.stat_result) -> ArtifactRef | None:
    """Return the file as an artifact. Return None if the program removed the read permission."""
    try:
        descriptor = os.open(names[-1], _FILE, dir_fd=directory)
    except PermissionError:
        return None
    with open(descriptor, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        size = file.tell()
    return ArtifactRef(
        path="/".join(names),
        digest_sha256=digest.hexdigest(),
        size=size,
        executable=bool(status.st_mode & stat.S_IXUSR),
    )


def is_text_name(names: tuple[str, ...]) -> bool:
    """Tell whether JSON can carry the name. Names that are not UTF-8 contain lone surrogates."""
    try:
        names[-1].encode()
    except UnicodeEncodeError:
        return False
    return True
