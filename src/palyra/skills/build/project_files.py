"""Projects on disk: templates that ship with Palyra, and reading and writing a project's folder."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import msgspec

from palyra.errors import Failed
from palyra.skills.build.project import (
    BUILD_NAME,
    EXAMPLES,
    BadProject,
    BuildPlan,
    Example,
    Language,
    parse_build_plan,
    parse_example,
    require_modules,
)
from palyra.skills.limits import MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_MANIFEST_BYTES
from palyra.skills.package.manifest import MANIFEST_NAME, SkillManifest, parse_manifest

_ASSETS: Final = "assets"
_A_SOURCE: Final = f"{BUILD_NAME} names it as a source: write it, or correct the name"
_MAX_EXAMPLE_BYTES: Final = 4 * 1024 * 1024


class ProjectExists(Failed):
    code = "skill.project_exists"
    hint = "choose another folder with --dir, or remove this one"


class Project(msgspec.Struct, frozen=True, kw_only=True):
    folder: Path
    manifest_bytes: bytes
    manifest: SkillManifest
    plan: BuildPlan
    sources: dict[str, bytes]
    assets: dict[str, bytes]
    examples: dict[str, Example]


def template(language: Language) -> dict[str, str]:
    """Read the files of a template by their path."""
    found: dict[str, str] = {}
    _collect(resources.files("palyra.skills.build") / "templates" / language.value, "", found)
    if not found:
        raise BadProject(f"there is no template for {language.value}")
    return found


def _collect(folder: Traversable, prefix: str, found: dict[str, str]) -> None:
    if not folder.is_dir():
        return
    for one in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if one.is_dir():
            _collect(one, f"{prefix}{one.name}/", found)
        else:
            found[f"{prefix}{one.name}"] = one.read_text("utf-8")


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """Write a new project. No existing file is changed."""
    if folder.exists() and any(folder.iterdir()):
        raise ProjectExists(f"{folder} exists and is not empty")
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(text)


@contextmanager
def copy_project(files: Mapping[str, bytes]) -> Iterator[Path]:
    """Make a temporary folder with exactly these files, so that a build uses them and nothing beside them."""
    with tempfile.TemporaryDirectory(prefix="palyra-project-") as folder:
        for path, data in files.items():
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        yield Path(folder)


def require_plain(folder: Path, path: Path) -> Path:
    """Raise if a link stands on the way from the project to the path: a project reads and writes its own files."""
    place = folder
    for part in path.relative_to(folder).parts:
        place /= part
        if place.is_symlink():
            raise BadProject(f"{place} is a link; a project is made of ordinary files")
    return path


def read_project(folder: Path) -> Project:
    manifest_bytes = _read(folder, MANIFEST_NAME, MAX_MANIFEST_BYTES)
    manifest = parse_manifest(manifest_bytes)
    plan = parse_build_plan(_read(folder, BUILD_NAME, MAX_MANIFEST_BYTES))
    require_modules(plan, manifest)
    names = sorted({source for build in plan.modules.values() for source in build.sources})
    return Project(
        folder=folder,
        manifest_bytes=manifest_bytes,
        manifest=manifest,
        plan=plan,
        sources={name: _read(folder, name, MAX_ENTRY_BYTES, hint=_A_SOURCE) for name in names},
        assets=_assets(folder),
        examples={
            name: parse_example(named := f"{EXAMPLES}{name}", _read(folder, named, _MAX_EXAMPLE_BYTES))
            for name in _example_names(folder / EXAMPLES)
        },
    )


def _example_names(place: Path) -> list[str]:
    """List the examples. A folder that cannot be read must not look like one without tests."""
    try:
        return sorted(name for name in os.listdir(place) if name.endswith(".json"))
    except OSError as error:
        _refuse_unless_missing(error)
        return []


def _refuse_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise BadProject(f"cannot read {error.filename}: {error.strerror}") from error


def _assets(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    top = require_plain(folder, folder / _ASSETS)
    for parent, folders, files in os.walk(top, onerror=_refuse_unless_missing):
        folders.sort()
        for name in folders:
            require_plain(folder, Path(parent, name))
        for name in sorted(files):
            path = Path(parent, name)
            found[path.relative_to(top).as_posix()] = _read(
                folder, path.relative_to(folder).as_posix(), MAX_ENTRY_BYTES
            )
            if len(found) > MAX_ENTRIES:
                raise BadProject(f"{_ASSETS} has more than {MAX_ENTRIES} files")
    return found


def _read(folder: Path, name: str, most: int, *, hint: str | None = None) -> bytes:
    path = require_plain(folder, folder / name)
    try:
        if not path.is_file():
            raise BadProject(f"{path} is missing", hint=hint)
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise BadProject(f"cannot read {path}: {error.strerror}") from error
    if len(data) > most:
        raise BadProject(f"{path} has more than {most} bytes")
    return data
