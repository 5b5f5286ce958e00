"""The part of a workspace that a leased call gets, and its files, which the worker builds again on its own disk."""

import re
from typing import Final, Self

import msgspec

from palyra.errors import Denied, InvalidInput, LimitExceeded
from palyra.fleet import limits
from palyra.workspace.names import WorkspacePath

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class BadScope(InvalidInput):
    code = "worker_scope.malformed"
    hint = "a root is an absolute path without .. and paths in it are relative to it"


class ScopeTooLarge(LimitExceeded):
    code = "worker_scope.too_large"
    hint = f"name a parent folder instead of more than {limits.MAX_SCOPE_PATHS} paths"


class OutsideScope(Denied):
    code = "worker_scope.denied"
    hint = "the lease covers only the paths that its scope names"


class BadArtifact(InvalidInput):
    code = "worker_artifact.malformed"
    hint = "an artifact has a SHA-256 in hex, its size in bytes and a relative path"


class ArtifactsTooLarge(LimitExceeded):
    code = "worker_artifact.too_large"
    hint = "give the call fewer or smaller files"


class WorkerWorkspaceScope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``allowed_paths`` are relative to ``root`` and include everything below them; ``.`` is the whole workspace.

    ``folders`` exist without an artifact in them, because the call writes there or because they are empty.
    """

    root: str
    allowed_paths: tuple[str, ...] = (".",)
    read_only: bool = True
    folders: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls,
        root: str,
        allowed_paths: tuple[str, ...] = (".",),
        *,
        read_only: bool = True,
        folders: tuple[str, ...] = (),
    ) -> Self:
        """Normalize the paths. Raise for a path that could have another meaning on another machine."""
        if not root.startswith("/") or len(root) > limits.MAX_SCOPE_ROOT_CHARS or "\0" in root:
            raise BadScope("the root of a scope is an absolute path")
        names = root.split("/")
        if ".." in names or "." in names:
            raise BadScope("the root of a scope has no . or .. in it")
        if len(allowed_paths) > limits.MAX_SCOPE_PATHS:
            raise ScopeTooLarge(f"the scope names {len(allowed_paths)} paths")
        paths = tuple(sorted({str(WorkspacePath.parse(path)) for path in allowed_paths}))
        scope = cls(root="/" + "/".join(name for name in names if name), allowed_paths=paths, read_only=read_only)
        return scope if not folders else scope.with_folders(folders)

    def with_folders(self, folders: tuple[str, ...]) -> Self:
        """Add folders. Raise for one that is neither in the scope nor above it."""
        if len(folders) > limits.MAX_ARTIFACTS:
            raise ScopeTooLarge(f"the scope has {len(folders)} folders without files")
        tops = [WorkspacePath.parse(one).names for one in self.allowed_paths]
        for folder in folders:
            names = WorkspacePath.parse(folder).names
            if not names or not any(names[: len(top)] == top[: len(names)] for top in tops):
                raise BadScope("a folder of a scope is in it, or above what it covers", path=folder[:200])
        spelled = tuple(sorted({str(WorkspacePath.parse(folder)) for folder in folders}))
        return msgspec.structs.replace(self, folders=spelled)

    def require(self, path: str, *, write: bool) -> None:
        """Raise unless the call may read, or write, this path."""
        names = WorkspacePath.parse(path).names
        if write and self.read_only:
            raise OutsideScope("the lease may only read", path=path[:200])
        if not any(names[: len(top)] == top for top in (WorkspacePath.parse(one).names for one in self.allowed_paths)):
            raise OutsideScope("the path is not in the scope of the lease", path=path[:200])


class ArtifactRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file, named by its digest. It is sent apart from the lease, and only if the receiver lacks it."""

    path: str
    digest_sha256: str
    size: int
    executable: bool = False


def require_artifacts(artifacts: tuple[ArtifactRef, ...], scope: WorkerWorkspaceScope, *, written: bool) -> None:
    """Raise unless the scope allows these inputs, or these ``written`` results."""
    if len(artifacts) > limits.MAX_ARTIFACTS:
        raise ArtifactsTooLarge(f"a lease has at most {limits.MAX_ARTIFACTS} artifacts")
    seen: set[tuple[str, ...]] = set()
    for artifact in artifacts:
        names = WorkspacePath.parse(artifact.path).names
        if not _SHA256.fullmatch(artifact.digest_sha256) or artifact.size < 0 or not names or names in seen:
            raise BadArtifact(f"{artifact.path[:200]!r} is not an artifact, or is repeated")
        if artifact.size > limits.MAX_ARTIFACT_BYTES:
            raise ArtifactsTooLarge(f"an artifact has at most {limits.MAX_ARTIFACT_BYTES} bytes")
        scope.require(artifact.path, write=written)
        seen.add(names)
    # A file cannot also be a folder.
    if any(names[:depth] in seen for names in seen for depth in range(1, len(names))):
        raise BadArtifact("an artifact lies beneath another artifact")
    if sum(artifact.size for artifact in artifacts) > limits.MAX_ARTIFACTS_BYTES:
        raise ArtifactsTooLarge(f"the artifacts of a lease have at most {limits.MAX_ARTIFACTS_BYTES} bytes together")
