"""The files of a leased call: copied from the workspace into the store of artifacts, and results copied back.

Both directions use the confinement of the file tools. Links and protected names are not sent, and a protected name
from a worker is refused.
"""

import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from palyra.errors import LimitExceeded, PalyraError
from palyra.fleet.agent.scratch import is_text_name
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.fleet.limits import CHUNK_BYTES, MAX_ARTIFACT_BYTES, MAX_ARTIFACTS, MAX_ARTIFACTS_BYTES
from palyra.fleet.store.artifacts import ArtifactStore
from palyra.pipeline.domain.approval import ApprovedFileChanged, BoundFile, SentFiles
from palyra.pipeline.domain.spec import ToolCapability, ToolSpec
from palyra.workspace.errors import NotFound, PlaceChanged
from palyra.workspace.names import WorkspacePath
from palyra.workspace.replacement import open_target, replace
from palyra.workspace.root import (
    NOTHING_DECIDED,
    OPEN_DIRECTORY,
    Shortfall,
    Workspace,
    hold,
    open_regular,
    open_workspace,
    refuse_cancelled,
    walk,
)

_WHOLE: Final[tuple[str, ...]] = (".",)


class TooMuchForWorker(LimitExceeded):
    code = "worker_tier.too_many_files"
    hint = "use a smaller workspace for calls on workers, or make the call here"


def scope_of(spec: ToolSpec, paths: tuple[str, ...], workspace: str, *, read_only: bool) -> WorkerWorkspaceScope:
    """Give a tool the paths that it names, a tool that runs programs the whole workspace, any other tool nothing."""
    capabilities = spec.metadata.capabilities
    writes = ToolCapability.FILESYSTEM_WRITE in capabilities and not read_only
    if ToolCapability.PROCESS_EXEC in capabilities:
        allowed = _WHOLE
    else:
        allowed = paths if capabilities & {ToolCapability.FILESYSTEM_READ, ToolCapability.FILESYSTEM_WRITE} else ()
    return WorkerWorkspaceScope.parse(workspace, allowed, read_only=not writes)


def gather_inputs(
    scope: WorkerWorkspaceScope,
    protected: tuple[str, ...],
    store: ArtifactStore,
    cancelled: threading.Event,
    decided: Mapping[str, str] = NOTHING_DECIDED,
) -> tuple[WorkerWorkspaceScope, tuple[ArtifactRef, ...]]:
    """Store every regular file of the scope, and add the folders without files to the scope. Blocking."""
    found: dict[tuple[str, ...], ArtifactRef] = {}
    folders: set[tuple[str, ...]] = set()
    total = 0
    if not scope.allowed_paths:
        return scope, ()
    with open_workspace(Path(scope.root), protected, read_only=True, decided=decided) as workspace:
        for path in map(WorkspacePath.parse, scope.allowed_paths):
            for names, opened in _list_entries(workspace, path, cancelled):
                if opened is None:
                    folders.add(names)
                    continue
                try:
                    with opened() as descriptor:
                        ref = _store_file("/".join(names), descriptor, store, cancelled)
                except NotFound:
                    # The file was removed after its folder was listed.
                    continue
                found[names] = ref
                total += ref.size
                if len(found) > MAX_ARTIFACTS or total > MAX_ARTIFACTS_BYTES:
                    raise TooMuchForWorker(
                        f"more than {MAX_ARTIFACTS} files or {MAX_ARTIFACTS_BYTES} bytes would go to the worker"
                    )
    # A file brings its folders along, and the workspace itself always exists.
    above = {(), *(names[:depth] for names in (*found, *folders) for depth in range(len(names)))}
    bare = tuple("/".join(names) for names in sorted(folders - above))
    if len(bare) > MAX_ARTIFACTS:
        raise TooMuchForWorker(f"more than {MAX_ARTIFACTS} empty folders would go to the worker")
    return scope.with_folders(bare), tuple(sorted(found.values(), key=lambda ref: ref.path))


def measure_scope(scope: WorkerWorkspaceScope, protected: tuple[str, ...]) -> SentFiles:
    """Count what ``gather_inputs`` would send, up to what a worker takes. Blocking."""
    files = size = 0
    more = False
    if scope.allowed_paths:
        with open_workspace(Path(scope.root), protected, read_only=True) as workspace:
            for path in map(WorkspacePath.parse, scope.allowed_paths):
                for _, opened in _list_entries(workspace, path, threading.Event()):
                    if opened is None:
                        continue
                    more = files == MAX_ARTIFACTS or size > MAX_ARTIFACTS_BYTES
                    if more:
                        break
                    with contextlib.suppress(PalyraError), opened() as descriptor:
                        files, size = files + 1, size + os.fstat(descriptor).st_size
    return SentFiles(paths=scope.allowed_paths, files=files, bytes=size, more=more)


def _list_entries(
    workspace: Workspace, path: WorkspacePath, cancelled: threading.Event
) -> Iterator[tuple[tuple[str, ...], Callable[[], AbstractContextManager[int]] | None]]:
    """Yield files, each with the function that opens it, and folders with None."""
    try:
        directory = workspace.open(path, OPEN_DIRECTORY)
    except NotFound:
        yield _find_folder_above(workspace, path), None
        return
    except PlaceChanged:
        raise
    except PalyraError:
        # The path names a single file.
        if workspace.protected.match(path.names) is None:
            yield path.names, lambda: workspace.open_file(path)
        return
    with hold(directory):
        yield path.names, None
        for entry in walk(
            directory,
            recursive=True,
            shortfall=Shortfall(),
            keep_going=lambda: refuse_cancelled(cancelled),
            enter=lambda names: workspace.protected.match((*path.names, *names)) is None,
        ):
            names = (*path.names, *entry.names)
            if workspace.protected.match(names) is not None or not is_text_name(names):
                continue
            if stat.S_ISDIR(entry.status.st_mode):
                yield names, None
            elif stat.S_ISREG(entry.status.st_mode):
                yield (
                    names,
                    lambda entry=entry, names=names: open_regular(  # type: ignore[misc]
                        entry.directory, entry.encoded, shown="/".join(names), follow=False
                    ),
                )


def _find_folder_above(workspace: Workspace, path: WorkspacePath) -> tuple[str, ...]:
    """Return the deepest existing folder above the path: the call may write into it."""
    for depth in range(len(path.names) - 1, 0, -1):
        try:
            with hold(workspace.open(WorkspacePath(path.names[:depth]), OPEN_DIRECTORY)):
                return path.names[:depth]
        except PalyraError:
            continue
    return ()


def refuse_changed_inputs(bound: tuple[BoundFile, ...], inputs: tuple[ArtifactRef, ...]) -> None:
    """Raise if a file that would be sent is not the one that the approval is bound to."""
    digests = {file.real: file.sha256 for file in bound if file.sha256}
    for ref in inputs:
        if digests.get(ref.path, ref.digest_sha256) != ref.digest_sha256:
            raise ApprovedFileChanged(f"{ref.path} changed after the call was approved", path=ref.path)


def _store_file(name: str, descriptor: int, store: ArtifactStore, cancelled: threading.Event) -> ArtifactRef:
    """Read the file for its digest, and again only if the store lacks it. A change in between is refused."""
    status = os.fstat(descriptor)
    if status.st_size > MAX_ARTIFACT_BYTES:
        raise TooMuchForWorker(f"{name} has more than {MAX_ARTIFACT_BYTES} bytes")
    summed = hashlib.sha256()
    for part in _read_chunks(descriptor, status.st_size, cancelled):
        summed.update(part)
    digest = summed.hexdigest()
    store.add(_read_chunks(descriptor, status.st_size, cancelled), status.st_size, digest)
    return ArtifactRef(
        path=name, digest_sha256=digest, size=status.st_size, executable=bool(status.st_mode & stat.S_IXUSR)
    )


def _read_chunks(descriptor: int, size: int, cancelled: threading.Event) -> Iterator[bytes]:
    offset = 0
    while offset < size:
        refuse_cancelled(cancelled)
        part = os.pread(descriptor, min(CHUNK_BYTES, size - offset), offset)
        if not part:
            return
        yield part
        offset += len(part)


def copy_to_workspace(
    scope: WorkerWorkspaceScope,
    artifacts: tuple[ArtifactRef, ...],
    protected: tuple[str, ...],
    store: ArtifactStore,
    cancelled: threading.Event,
    decided: Mapping[str, str] = NOTHING_DECIDED,
) -> None:
    """Replace each file as a whole, and stop at the first failure. Blocking."""
    with open_workspace(Path(scope.root), protected, read_only=scope.read_only, decided=decided) as workspace:
        for artifact in artifacts:
            scope.require(artifact.path, write=True)
            path = WorkspacePath.parse(artifact.path)
            with open_target(workspace, path, create_parents=True, cancelled=cancelled) as target:
                content = store.content(artifact.digest_sha256)
                replace(target, content, executable=artifact.executable, cancelled=cancelled)
