"""A skill's project as its author keeps it: how it is built, and the examples that test it."""

import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from palyra.canonical import digest_of
from palyra.errors import InvalidInput
from palyra.skills.limits import MAX_NAME_CHARS, MAX_PUBLISHER_CHARS, MAX_SKILL_ID_CHARS
from palyra.skills.package.artifact import ASSETS, MODULES, PROVENANCE_NAME, SBOM_NAME, SkillArtifact, pack_artifact
from palyra.skills.package.manifest import MANIFEST_NAME, PUBLISHER, SKILL_ID, SkillManifest, parse_manifest
from palyra.skills.package.supply_chain import Ingredient, make_provenance, make_sbom
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
    """Tell whether the path is in ``build/``, also by spellings that some file systems take for the same."""
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
    """Raise unless every module that a tool runs in is built, and nothing else."""
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


BUILDER: Final = "urn:palyra:skill-build:cli"


class BuiltModules(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a toolchain: modules by name, their ingredients, and the arguments that a rebuild needs."""

    modules: dict[str, bytes]
    ingredients: tuple[Ingredient, ...]
    arguments: dict[str, tuple[str, ...]]


def assemble(
    manifest: bytes,
    plan: BuildPlan,
    built: BuiltModules,
    *,
    sources: Mapping[str, bytes],
    assets: Mapping[str, bytes],
    origin: Mapping[str, str] | None = None,
) -> SkillArtifact:
    """Pack the unsigned archive. The same inputs give the same bytes. ``origin`` is that of a generated skill."""
    parsed = parse_manifest(manifest)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in built.modules.items()}
    parameters = {
        "language": plan.language.value,
        "modules": {name: list(arguments) for name, arguments in sorted(built.arguments.items())},
        "toolchain": [f"{one.name} {one.version}" for one in built.ingredients],
        **({"origin": dict(origin)} if origin else {}),
    }
    materials = {name: hashlib.sha256(data).hexdigest() for name, data in sources.items()}
    return pack_artifact(
        {
            MANIFEST_NAME: manifest,
            SBOM_NAME: make_sbom(parsed.skill_id, parsed.version, digests, built.ingredients),
            PROVENANCE_NAME: make_provenance(digests, builder=BUILDER, parameters=parameters, materials=materials),
            **{f"{MODULES}{name}": data for name, data in built.modules.items()},
            **{f"{ASSETS}{name}": data for name, data in assets.items()},
        }
    )


NOTE_VERSION: Final = 1
NOTES_FOLDER: Final = "skill-builds"
MAX_NOTE_BYTES: Final = 1_024


class BuildNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A build's note about its result, in a folder that only the author writes.

    An archive in a project's folder may be a stranger's, with a provenance of their choice. The note shows whether the
    archive is still the one that was built. ``inputs`` is the digest of the sources, ``archive`` that of the unsigned
    archive.
    """

    note_version: int = NOTE_VERSION
    inputs: str
    archive: str

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


def parse_note(raw: bytes) -> BuildNote | None:
    """Read a note, or return None if this version cannot: without a note a project is built again."""
    try:
        note = msgspec.json.decode(raw, type=BuildNote)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return note if note.note_version == NOTE_VERSION else None


def note_name(folder: Path) -> str:
    """Name the note about the project in this folder, which must be absolute and without links."""
    return f"{NOTES_FOLDER}/{hashlib.sha256(os.fsencode(folder)).hexdigest()}.json"


def inputs_digest(
    manifest: bytes, plan: BuildPlan, *, sources: Mapping[str, bytes], assets: Mapping[str, bytes]
) -> str:
    def digests(files: Mapping[str, bytes]) -> dict[str, str]:
        return {os.fsencode(name).hex(): hashlib.sha256(data).hexdigest() for name, data in files.items()}

    return digest_of(
        {
            "manifest": hashlib.sha256(manifest).hexdigest(),
            "plan": msgspec.to_builtins(plan),
            "sources": digests(sources),
            "assets": digests(assets),
        }
    )


TEMPLATE_SUFFIX: Final = ".in"
DEFAULT_PUBLISHER: Final = "local"
# Names that archives and version control would not carry as they are.
_RENAMED: Final = {"gitignore": ".gitignore"}
_WORD: Final = re.compile(r"@([A-Z]+)@")


class BadSkillName(InvalidInput):
    code = "skill.bad_name"
    hint = "a skill's id is lower-case words joined by dots, such as acme.notes"


class ProjectNames(msgspec.Struct, frozen=True, kw_only=True):
    skill_id: str
    publisher: str
    module: str
    name: str


def require_publisher(name: str) -> None:
    if not PUBLISHER.pattern.fullmatch(name) or len(name) > MAX_PUBLISHER_CHARS:
        raise BadSkillName(
            f"a publisher cannot be named {name[:MAX_NAME_CHARS]!r}", hint=f"a publisher is {PUBLISHER.words}"
        )


def project_names(skill_id: str, publisher: str = DEFAULT_PUBLISHER) -> ProjectNames:
    if not SKILL_ID.pattern.fullmatch(skill_id) or len(skill_id) > MAX_SKILL_ID_CHARS:
        raise BadSkillName(f"a skill cannot be named {skill_id[:MAX_NAME_CHARS]!r}")
    require_publisher(publisher)
    word = skill_id.rpartition(".")[2]
    name = word.replace("-", " ").replace("_", " ").strip().capitalize()
    return ProjectNames(skill_id=skill_id, publisher=publisher, module=f"{word}.wasm", name=name)


def fill(template: Mapping[str, str], names: ProjectNames) -> dict[str, str]:
    """Fill the names into a template. A word that it does not know is a mistake in the template."""
    words = {"ID": names.skill_id, "PUBLISHER": names.publisher, "MODULE": names.module, "NAME": names.name}
    filled = {}
    for path, text in template.items():
        folder, slash, last = path.removesuffix(TEMPLATE_SUFFIX).rpartition("/")
        filled[f"{folder}{slash}{_RENAMED.get(last, last)}"] = _WORD.sub(lambda found: words[found.group(1)], text)
    return filled
