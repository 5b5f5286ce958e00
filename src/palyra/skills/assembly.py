"""From built modules to the archive that is signed: with an SBOM and a provenance that match them."""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from palyra.skills.artifact import ASSETS, MODULES, PROVENANCE_NAME, SBOM_NAME, SkillArtifact, pack_artifact
from palyra.skills.manifest import MANIFEST_NAME, parse_manifest
from palyra.skills.project import BuildPlan
from palyra.skills.provenance import make_provenance
from palyra.skills.sbom import Ingredient, make_sbom

BUILDER: Final = "urn:palyra:skill-build:cli"


class BuiltModules(msgspec.Struct, frozen=True, kw_only=True):
    """What a toolchain made: modules by name, what went into them, and the arguments that a rebuild needs."""

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
    """The unsigned archive. The same inputs give the same bytes. ``origin`` tells where a generated skill came from."""
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
