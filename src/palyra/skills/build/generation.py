"""The skill builder (experimental): from a description or from recorded calls to a project that a person reviews.

Inference generalises as little as it can: a schema admits the recorded values and others of the same shape, a
capability is one that a call really used. Generating is a port. The work of a generator is a stranger's: bounded,
parsed as any project is, held to the capabilities that the recorded calls used, and kept in quarantine until a person
promotes exactly what was reviewed.
"""

import hashlib
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from palyra.egress.domain.target import Target
from palyra.errors import Denied, InvalidInput, PalyraError
from palyra.skills.build.project import (
    BUILD_FOLDER,
    BUILD_FOLDER_HINT,
    BUILD_NAME,
    EXAMPLES,
    Language,
    ProjectNames,
    in_build_folder,
    parse_build_plan,
    parse_example,
    require_modules,
)
from palyra.skills.package.manifest import MANIFEST_NAME, SkillManifest, parse_manifest

# Deeper than this, and with more keys, a recorded value is data and not a shape.
_MAX_DEPTH: Final = 8
_MAX_PROPERTIES: Final = 64
_HTTPS_PORT: Final = 443
STORAGE_ROOT: Final = "files"


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a run. ``result`` is None where it did not succeed or its result was not kept."""

    tool: str
    arguments: dict[str, Any]
    result: Any = None


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities that a skill with the same effect requests. ``beyond`` are calls that no skill can make."""

    hosts: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()


def infer_object_schema(values: Sequence[Any]) -> dict[str, Any]:
    """Infer a schema of objects, which tools take and return. Without examples any object fits."""
    objects = [value for value in values if isinstance(value, dict)]
    return infer_schema(objects) if objects else {"type": "object"}


def infer_schema(values: Sequence[Any], depth: int = 0) -> dict[str, Any]:
    kinds = {_KINDS.get(type(value), "object") for value in values}
    if "integer" in kinds and "number" in kinds:
        kinds.discard("integer")
    if not kinds or depth >= _MAX_DEPTH:
        return {}
    schema: dict[str, Any] = {"type": min(kinds) if len(kinds) == 1 else sorted(kinds)}
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        schema.update(_object_part(objects, depth))
    items = [item for value in values if isinstance(value, list) for item in value]
    if items:
        inner = infer_schema(items, depth + 1)
        if inner:
            schema["items"] = inner
    return schema


def _object_part(objects: list[dict[str, Any]], depth: int) -> dict[str, Any]:
    keys = sorted({key for value in objects for key in value})
    if len(keys) > _MAX_PROPERTIES:
        return {}
    properties = {key: infer_schema([value[key] for value in objects if key in value], depth + 1) for key in keys}
    required = [key for key in keys if all(key in value for value in objects)]
    part: dict[str, Any] = {"properties": properties, "additionalProperties": False}
    return {**part, "required": required} if required else part


_KINDS: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
}


def host_and_path(url: Any) -> tuple[str, str] | None:
    """Split an https URL into the host as a manifest lists it, and the path. Returns None for anything else."""
    if not isinstance(url, str):
        return None
    try:
        target = Target.from_url(url)
    except PalyraError:
        return None
    if target.scheme != "https" or target.is_address:
        return None
    rest = url.partition("://")[2].partition("#")[0]
    at = min((place for place in (rest.find("/"), rest.find("?")) if place >= 0), default=len(rest))
    path = rest[at:]
    host = target.host if target.port == _HTTPS_PORT else target.authority
    return host, path if path.startswith("/") else f"/{path}"


def infer_needs(calls: Iterable[RecordedCall]) -> Needs:
    hosts: set[str] = set()
    reads = writes = False
    beyond: dict[str, None] = {}
    for call in calls:
        match call.tool:
            case "http.fetch":
                place = host_and_path(call.arguments.get("url"))
                if place is None:
                    beyond[f"{call.tool}: skills reach named hosts over https only"] = None
                else:
                    hosts.add(place[0])
            case "fs.read" | "fs.list" | "fs.search":
                reads = True
            case "fs.write" | "fs.patch":
                writes = True
            case tool if tool.startswith(("process.", "plugin.", "browser.", "node.")):
                beyond[f"{tool}: a skill runs no programs, modules, browsers or devices"] = None
            case _:
                continue
    return Needs(
        hosts=tuple(sorted(hosts)),
        read_roots=(STORAGE_ROOT,) if reads and not writes else (),
        write_roots=(STORAGE_ROOT,) if writes else (),
        beyond=tuple(beyond),
    )


CANDIDATE_VERSION: Final = 1
MAX_PROMPT_CHARS: Final = 20_000
MAX_CALLS: Final = 200
MAX_FILES: Final = 100
MAX_FILE_CHARS: Final = 1_000_000
# The templates have two for each tool and one for each call at most.
MAX_NOTES: Final = 400
# Of all notes: with the longest prompt they fit into a candidate's record, however they are escaped.
MAX_NOTES_CHARS: Final = 100_000
# No dot files, nothing absolute, no `..`: a generator writes into its candidate and nowhere else.
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,4}")


class BuilderDisabled(Denied):
    code = "skill.builder_disabled"
    hint = "the builder is experimental: set skills.builder_enabled = true to use it"


class BadGeneration(InvalidInput):
    code = "skill.bad_generation"
    hint = "the generator's answer is not a project that Palyra takes; nothing of it was kept"


class NothingToBuild(InvalidInput):
    code = "skill.nothing_to_build"
    hint = "give --prompt TEXT, or --from-runs with runs that made calls"


class NotWhatWasReviewed(Denied):
    code = "skill.candidate_changed"
    hint = "look at it again with `palyra skill builder show`, and name the digest shown there"


class CandidateClosed(InvalidInput):
    code = "skill.candidate_closed"
    hint = "only a candidate in quarantine can be promoted or discarded"


class CandidateState(StrEnum):
    QUARANTINED = "quarantined"
    PROMOTED = "promoted"
    DISCARDED = "discarded"


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    names: ProjectNames
    language: Language
    prompt: str = ""
    calls: tuple[RecordedCall, ...] = ()
    needs: Needs = Needs()


class Generated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files by path, and notes of the generator for a reviewer."""

    files: dict[str, str]
    notes: tuple[str, ...] = ()


class Generator(Protocol):
    @property
    def name(self) -> str: ...

    def generate(self, request: GenerationRequest) -> Generated: ...


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a candidate. Its files lie beside it and may be edited until it is promoted."""

    candidate_version: int = CANDIDATE_VERSION
    id: str
    skill_id: str
    language: Language
    generator: str
    created_ms: int
    prompt: str = ""
    runs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    state: CandidateState = CandidateState.QUARANTINED
    # Of the archive it became.
    artifact_digest: str = ""

    def closed(self, state: CandidateState, artifact_digest: str = "") -> "Candidate":
        if self.state is not CandidateState.QUARANTINED:
            raise CandidateClosed(f"{self.id} is {self.state}")
        return msgspec.structs.replace(self, state=state, artifact_digest=artifact_digest)

    def origin(self) -> dict[str, str]:
        """Name the source for the provenance, without the texts that people typed."""
        found = {"generator": self.generator, "candidate": self.id}
        if self.prompt:
            found["prompt_sha256"] = hashlib.sha256(self.prompt.encode()).hexdigest()
        if self.runs:
            found["runs"] = ",".join(self.runs)
        return found


def generation_request(
    names: ProjectNames, language: Language, prompt: str, calls: tuple[RecordedCall, ...]
) -> GenerationRequest:
    if not prompt.strip() and not calls:
        raise NothingToBuild("there is neither a description nor a recorded call")
    if len(prompt) > MAX_PROMPT_CHARS or len(calls) > MAX_CALLS:
        raise NothingToBuild(f"at most {MAX_PROMPT_CHARS} characters and {MAX_CALLS} calls can be taken up")
    return GenerationRequest(names=names, language=language, prompt=prompt, calls=calls, needs=infer_needs(calls))


def require_generated(generated: Generated, request: GenerationRequest) -> SkillManifest:
    """Raise unless the files are a project for this request that asks for no more than was recorded."""
    if not 1 <= len(generated.files) <= MAX_FILES:
        raise BadGeneration(f"it has {len(generated.files)} files; between 1 and {MAX_FILES} are allowed")
    if len(generated.notes) > MAX_NOTES or sum(map(len, generated.notes)) > MAX_NOTES_CHARS:
        raise BadGeneration(f"it may have at most {MAX_NOTES} notes with {MAX_NOTES_CHARS} characters in all")
    folded: set[str] = set()
    for path, text in generated.files.items():
        if not _PATH.fullmatch(path) or path.lower() in folded:
            raise BadGeneration(f"a file may not be named {path[:80]!r}")
        if in_build_folder(path):
            raise BadGeneration(f"a file may not be in {BUILD_FOLDER}/: {path[:80]!r}", hint=BUILD_FOLDER_HINT)
        folded.add(path.lower())
        if len(text) > MAX_FILE_CHARS:
            raise BadGeneration(f"{path} has more than {MAX_FILE_CHARS} characters")
    for path in folded:
        if any(path[: found.start()] in folded for found in re.finditer("/", path)):
            raise BadGeneration(f"a file may not be a folder as well: {path.rpartition('/')[0][:80]!r}")
    for needed in (MANIFEST_NAME, BUILD_NAME):
        if needed not in generated.files:
            raise BadGeneration(f"it has no {needed}")
    manifest = parse_manifest(generated.files[MANIFEST_NAME].encode())
    plan = parse_build_plan(generated.files[BUILD_NAME].encode())
    require_modules(plan, manifest)
    if plan.language is not request.language:
        raise BadGeneration(f"it is in {plan.language}, and {request.language} was asked for")
    for build in plan.modules.values():
        for source in build.sources:
            if source not in generated.files:
                raise BadGeneration(f"it has no {source}, which {BUILD_NAME} names")
    for path, text in generated.files.items():
        if path.startswith(EXAMPLES) and path.endswith(".json"):
            parse_example(path, text.encode())
    names = request.names
    if (manifest.skill_id, manifest.publisher) != (names.skill_id, names.publisher):
        raise BadGeneration(f"it calls itself {manifest.skill_id} by {manifest.publisher}")
    if request.calls:
        _require_within(manifest, request.needs)
    return manifest


def _require_within(manifest: SkillManifest, needs: Needs) -> None:
    asked = manifest.capabilities
    roots = {*needs.read_roots, *needs.write_roots}
    beyond = [
        *(f"host {one}" for one in asked.http_egress_allowlist if one not in needs.hosts),
        *(f"storage {one}" for one in asked.filesystem.read_roots if one not in roots),
        *(f"storage {one} for writing" for one in asked.filesystem.write_roots if one not in needs.write_roots),
        *(f"secret {one}" for one in asked.secrets if one not in needs.secrets),
        *(f"channel {one}" for one in asked.channels),
        *(f"ability {one}" for one in (*asked.device, *asked.node)),
    ]
    if beyond:
        raise BadGeneration(f"it asks for more than the recorded calls used: {', '.join(beyond[:5])}")


def files_digest(files: Mapping[str, bytes]) -> str:
    """Compute SHA-256 over names and contents, each after its length. A reviewer names it when promoting."""
    found = hashlib.sha256(b"palyra.skill.candidate.v1")
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            found.update(struct.pack(">Q", len(part)) + part)
    return found.hexdigest()


def require_reviewed(reviewed: str, files: Mapping[str, bytes]) -> None:
    current = files_digest(files)
    if reviewed != current:
        raise NotWhatWasReviewed(f"the candidate's files have the digest {current}, not {reviewed[:64]}")
