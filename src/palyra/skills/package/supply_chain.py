"""The two statements about an archive's modules, which must list exactly them.

``provenance.json`` says how they were made, as an in-toto statement with SLSA provenance v1. ``sbom.cdx.json`` lists
what a skill is made of, in CycloneDX.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import Tampered
from palyra.skills.package.artifact import MODULES, SkillArtifact
from palyra.strict_json import NotStrictJson, parse_strict

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:palyra:skill-build:v1"


class ProvenanceMismatch(Tampered):
    code = "skill.provenance_mismatch"
    hint = "build the skill again: its provenance has to be that of exactly the modules it ships with"


def make_provenance(
    modules: Mapping[str, str],
    *,
    builder: str,
    parameters: Mapping[str, Any],
    materials: Mapping[str, str] | None = None,
) -> bytes:
    """``modules`` and ``materials`` (sources, by name) are SHA-256 digests. No time: builds stay reproducible."""
    document = {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": f"{MODULES}{name}", "digest": {"sha256": digest}} for name, digest in sorted(modules.items())
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "resolvedDependencies": [
                    {"name": name, "digest": {"sha256": digest}} for name, digest in sorted((materials or {}).items())
                ],
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }
    return canonical_json(document)


def require_provenance(artifact: SkillArtifact) -> str:
    """Return the builder's id. Raises unless the statement is about exactly the modules of this archive."""
    try:
        document = parse_strict(artifact.provenance, any_number_spelling=True)
    except NotStrictJson as error:
        raise ProvenanceMismatch(f"the provenance is not JSON: {error.message}") from error
    match document:
        case {
            "_type": str(kind),
            "subject": list(subjects),
            "predicateType": str(predicate_type),
            "predicate": {"buildDefinition": {"buildType": str()}, "runDetails": {"builder": {"id": str(builder)}}},
        } if kind == STATEMENT_TYPE and predicate_type == PREDICATE_TYPE:
            _require_subjects(subjects, artifact.module_digests)
            return builder
        case _:
            raise ProvenanceMismatch("the provenance is not an in-toto statement v1 with SLSA provenance v1")


def _require_subjects(subjects: list[Any], expected: Mapping[str, str]) -> None:
    named: dict[str, str] = {}
    for subject in subjects:
        match subject:
            case {"name": str(name), "digest": {"sha256": str(digest)}} if name.startswith(MODULES):
                module = name.removeprefix(MODULES)
                if module in named:
                    raise ProvenanceMismatch(f"the provenance tells of {name} twice")
                named[module] = digest
            case _:
                raise ProvenanceMismatch("a subject of the provenance is not a module with its SHA-256")
    for module in sorted({*expected, *named}):
        if module not in expected:
            raise ProvenanceMismatch(f"the provenance tells of {MODULES}{module}, which is not in the archive")
        if named.get(module) != expected[module]:
            raise ProvenanceMismatch(f"the provenance is not that of {MODULES}{module}")


SPEC_VERSION: Final = "1.6"
_READ_VERSIONS: Final = frozenset(("1.4", "1.5", "1.6"))
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class SbomMismatch(Tampered):
    code = "skill.sbom_mismatch"
    hint = "build the skill again: its SBOM has to tell of exactly the modules it ships with"


class Ingredient(msgspec.Struct, frozen=True, kw_only=True):
    """A library or tool that went into a module."""

    name: str
    version: str = ""
    kind: str = "library"
    purl: str = ""


def make_sbom(skill_id: str, version: str, modules: Mapping[str, str], ingredients: Sequence[Ingredient] = ()) -> bytes:
    """``modules`` are SHA-256 digests by name. No serial number and no time: the same inputs give the same bytes."""
    components: list[dict[str, Any]] = [
        {"type": "file", "name": f"{MODULES}{name}", "hashes": [{"alg": "SHA-256", "content": modules[name]}]}
        for name in sorted(modules)
    ]
    for one in sorted(ingredients, key=lambda ingredient: (ingredient.name, ingredient.version)):
        component = {"type": one.kind, "name": one.name, "version": one.version, "purl": one.purl}
        components.append({key: value for key, value in component.items() if value})
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": {"type": "application", "name": skill_id, "version": version}},
        "components": components,
    }
    return canonical_json(document)


def require_sbom(artifact: SkillArtifact) -> None:
    """Raise unless the SBOM is of this skill and version and lists exactly its modules by digest."""
    try:
        document = parse_strict(artifact.sbom, any_number_spelling=True)
    except NotStrictJson as error:
        raise SbomMismatch(f"the SBOM is not JSON: {error.message}") from error
    match document:
        case {
            "bomFormat": "CycloneDX",
            "specVersion": str(spec),
            "metadata": {"component": {"name": name, "version": version}},
            "components": list(components),
        } if spec in _READ_VERSIONS:
            manifest = artifact.manifest
            if (name, version) != (manifest.skill_id, manifest.version):
                raise SbomMismatch(f"the SBOM is of {name!r} {version!r}")
            _require_modules(components, artifact.module_digests)
        case _:
            raise SbomMismatch("the SBOM is not CycloneDX 1.4 to 1.6 in JSON with a metadata component")


def _require_modules(components: list[Any], expected: Mapping[str, str]) -> None:
    listed: dict[str, str] = {}
    for component in components:
        match component:
            case {"name": str(name), **rest} if name.startswith(MODULES):
                module = name.removeprefix(MODULES)
                if module in listed:
                    raise SbomMismatch(f"the SBOM lists {name} twice")
                listed[module] = _sha256_of(name, rest)
            case {"name": str()}:
                continue
            case _:
                raise SbomMismatch("a component of the SBOM has no name")
    for module in sorted({*expected, *listed}):
        if module not in listed:
            raise SbomMismatch(f"the SBOM does not list {MODULES}{module}")
        if module not in expected:
            raise SbomMismatch(f"the SBOM lists {MODULES}{module}, which is not in the archive")
        if listed[module] != expected[module]:
            raise SbomMismatch(f"the SBOM tells of another {MODULES}{module}: {listed[module]}")


def _sha256_of(name: str, component: dict[Any, Any]) -> str:
    hashes = component.get("hashes")
    found = [
        entry.get("content")
        for entry in (hashes if isinstance(hashes, list) else ())
        if isinstance(entry, dict) and entry.get("alg") == "SHA-256"
    ]
    if len(found) != 1 or not isinstance(found[0], str) or not _SHA256.fullmatch(found[0]):
        raise SbomMismatch(f"the SBOM gives no single SHA-256 of {name}")
    return found[0]
