"""A skill's project as its author keeps it: how it is built, and the examples that test it."""

import re
import tomllib
from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.errors import InvalidInput
from palyra.skills.manifest import SkillManifest
from palyra.strict_json import NotStrictJson, parse_strict

BUILD_VERSION: Final = 1
BUILD_NAME: Final = "build.toml"
EXAMPLES: Final = "examples/"
BUILD_FOLDER: Final = "build"
BUILD_FOLDER_HINT: Final = f"{BUILD_FOLDER}/ is for what a build makes, and no review shows it: keep sources elsewhere"
PLAN_HINT: Final = f"docs/reference/skill-manifest.md shows a whole {BUILD_NAME}"
_EXAMPLE_HINT: Final = (
    "an example has tool, input, and output or error; where it needs them also config, http, storage, storage_after"
    " and messages"
)
# A relative path of ordinary names: a project builds from its own files.
_SOURCE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_MAX_SOURCES: Final = 256


class Language(StrEnum):
    C = "c"
    ASSEMBLYSCRIPT = "assemblyscript"
    PYTHON = "python"
    RUST = "rust"
    WAT = "wat"


class BadProject(InvalidInput):
    code = "skill.bad_project"
    hint = "a project has skill.toml, build.toml, its sources and examples/*.json; `palyra skill new` makes one"


class ModuleBuild(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sources`` are files of the project, the one to compile first. All of them go into the provenance."""

    sources: tuple[str, ...]


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    build_version: int
    language: Language
    modules: dict[str, ModuleBuild]


class Exchange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request that an example expects, and what it is answered."""

    host: str
    path: str
    method: str = "GET"
    status: int = 200
    headers: dict[str, str] = {}
    body: str = ""


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call and how it ends: with ``output``, or with ``error`` within the message of the skill.

    ``config`` is what an operator would have set. ``storage`` is there before (``prefix/key`` to text),
    ``storage_after`` is what must be there afterwards.
    """

    tool: str
    input: dict[str, Any]
    config: dict[str, Any] = {}
    output: dict[str, Any] | None = None
    error: str | None = None
    http: tuple[Exchange, ...] = ()
    storage: dict[str, str] = {}
    storage_after: dict[str, str] | None = None
    messages: tuple[tuple[str, str], ...] | None = None


def in_build_folder(path: str) -> bool:
    """Also by the spellings that some file systems take for the same. ``path`` is one of ordinary names."""
    return path.partition("/")[0].rstrip(".").lower() == BUILD_FOLDER


def parse_build_plan(raw: bytes) -> BuildPlan:
    try:
        tree = tomllib.loads(raw.decode("utf-8"))
        if tree.get("build_version") != BUILD_VERSION:
            raise BadProject(f"{BUILD_NAME} must begin with build_version = {BUILD_VERSION}")
        if (language := tree.get("language")) not in list(Language):
            raise BadProject(
                f"{BUILD_NAME}: language is {str(language)[:80]!r}; it must be one of {', '.join(Language)}",
                hint=PLAN_HINT,
            )
        plan = msgspec.convert(tree, BuildPlan)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadProject(f"{BUILD_NAME} is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise BadProject(f"{BUILD_NAME}: {error}", hint=PLAN_HINT) from error
    except ValueError as error:
        raise BadProject(f"{BUILD_NAME} has a number of thousands of digits") from error
    for module, build in plan.modules.items():
        if not 1 <= len(build.sources) <= _MAX_SOURCES:
            raise BadProject(f"{BUILD_NAME}: {module} has {len(build.sources)} sources")
        for source in build.sources:
            if not _SOURCE.fullmatch(source):
                raise BadProject(f"{BUILD_NAME}: {source[:80]!r} is not the path of a file in the project")
            if in_build_folder(source):
                raise BadProject(f"{BUILD_NAME}: {source[:80]!r} is in {BUILD_FOLDER}/", hint=BUILD_FOLDER_HINT)
    return plan


def require_modules(plan: BuildPlan, manifest: SkillManifest) -> None:
    """Every module that a tool runs in is built, and nothing else."""
    wanted, built = set(manifest.modules()), set(plan.modules)
    for module in sorted(wanted - built):
        raise BadProject(f'{BUILD_NAME} does not say how {module} is built: write [modules."{module}"]')
    for module in sorted(built - wanted):
        raise BadProject(f"{BUILD_NAME} builds {module}, which no tool of skill.toml runs in")


def parse_example(name: str, raw: bytes) -> Example:
    try:
        example = msgspec.convert(parse_strict(raw, any_number_spelling=True), Example)
    except NotStrictJson as error:
        raise BadProject(f"{name}: {error.message}", hint=error.hint) from error
    except msgspec.ValidationError as error:
        raise BadProject(f"{name}: {error}", hint=_EXAMPLE_HINT) from error
    if (example.output is None) == (example.error is None):
        raise BadProject(f"{name} has to expect either an output or an error", hint=_EXAMPLE_HINT)
    return example
