from typing import Any

import pytest

from fakes.fleet_peers import SCOPE
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.domain.workspace_scope import (
    ArtifactRef,
    ArtifactsTooLarge,
    BadArtifact,
    BadScope,
    OutsideScope,
    ScopeTooLarge,
    WorkerWorkspaceScope,
    require_artifacts,
)
from palyra.workspace.names import BadPath


def artifact(path: str, **changes: Any) -> ArtifactRef:
    return ArtifactRef(**{"path": path, "digest_sha256": "ab" * 32, "size": 1, **changes})


def test_paths_have_one_spelling() -> None:
    scope = WorkerWorkspaceScope.parse("/srv//work/", ("./src//", "out", "src"))
    assert (scope.root, scope.allowed_paths, scope.read_only) == ("/srv/work", ("out", "src"), True)


@pytest.mark.parametrize("root", ["", "srv", "/srv/../etc", "/srv/./x", "/a\0b", "/" + "a" * 5_000])
def test_roots_that_could_mean_something_else_are_refused(root: str) -> None:
    with pytest.raises(BadScope):
        WorkerWorkspaceScope.parse(root)


@pytest.mark.parametrize("path", ["../x", "/etc", "a/../../b", ""])
def test_paths_that_leave_the_root_are_refused(path: str) -> None:
    with pytest.raises(BadPath):
        WorkerWorkspaceScope.parse("/srv", (path,))
    with pytest.raises(BadPath):
        SCOPE.require(path, write=False)


def test_a_scope_covers_what_is_beneath_its_paths_and_nothing_beside() -> None:
    for path in ("src", "src/a/b", "./out/x"):
        SCOPE.require(path, write=True)
    for path in (".", "srcs", "sr", "outer/x", "other"):
        with pytest.raises(OutsideScope):
            SCOPE.require(path, write=False)
    everything = WorkerWorkspaceScope.parse("/srv")
    everything.require("any/thing", write=False)
    with pytest.raises(OutsideScope, match="only read"):
        everything.require("any/thing", write=True)


@pytest.mark.promise("P-limits")
def test_a_scope_names_a_bounded_number_of_paths() -> None:
    with pytest.raises(ScopeTooLarge):
        WorkerWorkspaceScope.parse("/srv", tuple(f"p{n}" for n in range(limits.MAX_SCOPE_PATHS + 1)))


def test_artifacts_lie_in_the_scope() -> None:
    require_artifacts((artifact("src/a"), artifact("out/b")), SCOPE, written=True)
    with pytest.raises(OutsideScope):
        require_artifacts((artifact("etc/passwd"),), SCOPE, written=False)
    with pytest.raises(OutsideScope):
        require_artifacts((artifact("src/a"),), WorkerWorkspaceScope.parse("/srv", ("src",)), written=True)


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    ("artifacts", "refusal"),
    [
        ((artifact("src/a"), artifact("./src//a")), BadArtifact),
        ((artifact("src/a"), artifact("src/a/b")), BadArtifact),
        ((artifact("src/a", digest_sha256="AB" * 32),), BadArtifact),
        ((artifact("src/a", size=-1),), BadArtifact),
        ((artifact("."),), BadArtifact),
        ((artifact("src/../../a"),), BadPath),
        ((artifact("src/a", size=limits.MAX_ARTIFACT_BYTES + 1),), ArtifactsTooLarge),
        (tuple(artifact(f"src/{n}", size=limits.MAX_ARTIFACT_BYTES) for n in range(5)), ArtifactsTooLarge),
        (tuple(artifact(f"src/{n}") for n in range(limits.MAX_ARTIFACTS + 1)), ArtifactsTooLarge),
    ],
)
def test_artifacts_that_are_none_or_too_many(artifacts: tuple[ArtifactRef, ...], refusal: type[PalyraError]) -> None:
    with pytest.raises(refusal):
        require_artifacts(artifacts, SCOPE, written=False)


def test_folders_are_in_the_scope_or_on_the_way_to_it() -> None:
    scope = WorkerWorkspaceScope.parse("/srv", ("src/a.txt", "out"), folders=("out//x/", "src", "out/x"))
    assert scope.folders == ("out/x", "src")
    for path in (".", "other", "src/b", "outer"):
        with pytest.raises(BadScope):
            scope.with_folders((path,))
    with pytest.raises(BadPath):
        scope.with_folders(("../out",))
    with pytest.raises(ScopeTooLarge):
        scope.with_folders(tuple(f"out/{number}" for number in range(limits.MAX_ARTIFACTS + 1)))
