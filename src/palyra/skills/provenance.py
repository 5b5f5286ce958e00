"""``provenance.json``: how the modules were made, as an in-toto statement with SLSA provenance v1."""

from collections.abc import Mapping
from typing import Any, Final

from palyra.canonical import canonical_json
from palyra.errors import Tampered
from palyra.skills.artifact import MODULES, SkillArtifact
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
    """The builder's id, once the statement is about exactly the modules of this archive; raises otherwise."""
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
    told: dict[str, str] = {}
    for subject in subjects:
        match subject:
            case {"name": str(name), "digest": {"sha256": str(digest)}} if name.startswith(MODULES):
                module = name.removeprefix(MODULES)
                if module in told:
                    raise ProvenanceMismatch(f"the provenance tells of {name} twice")
                told[module] = digest
            case _:
                raise ProvenanceMismatch("a subject of the provenance is not a module with its SHA-256")
    for module, digest in expected.items():
        if told.get(module) != digest:
            raise ProvenanceMismatch(f"the provenance is not that of {MODULES}{module}")
    for module in told:
        if module not in expected:
            raise ProvenanceMismatch(f"the provenance tells of {MODULES}{module}, which is not in the archive")
