"""Skills to install: small modules, manifests and archives, signed with keys of this process; and a registry."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fakes.journal_harness import JournalHarness
from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.executors.wasm.skill_storage import SkillFolders
from palyra.signing.ed25519 import Ed25519Signer, Ed25519Verifier
from palyra.skills.package.artifact import SkillArtifact, pack_artifact
from palyra.skills.package.supply_chain import make_provenance, make_sbom
from palyra.skills.registry.archives import ArtifactFiles
from palyra.skills.registry.records import SkillVersion
from palyra.skills.registry.registry import SkillRegistry
from palyra.skills.registry.schema import SCHEMA
from palyra.skills.trust.signature import sign_artifact
from palyra.store.sqlite.store import SqliteStore

SKILL = "acme.notes"
PUBLISHER = "acme"
ACTOR = "user:operator"
ECHO = """(module
  (memory (export "memory") 1 4)
  (global $next (mut i32) (i32.const 1024))
  (func (export "palyra_alloc") (param i32) (result i32)
    (global.get $next) (global.set $next (i32.add (global.get $next) (local.get 0))))
  (func (export "run") (param i32 i32 i32 i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get 2)) (i64.const 32)) (i64.extend_i32_u (local.get 3)))))"""
ANY_OBJECT = '{ type = "object" }'


@cache
def wat(text: str) -> bytes:
    import wasmtime

    return bytes(wasmtime.wat2wasm(text))


@cache
def key(name: str) -> Ed25519Signer:
    return Ed25519Signer.generate()


def manifest(
    version: str = "1.0.0", *, skill_id: str = SKILL, publisher: str = PUBLISHER, capabilities: str = "", more: str = ""
) -> bytes:
    """``capabilities`` is the body of that table, ``more`` whatever TOML stands at the end."""
    return f"""manifest_version = 1
skill_id = "{skill_id}"
name = "Notes"
version = "{version}"
publisher = "{publisher}"

[capabilities]
{capabilities}

[[entrypoints.tools]]
id = "add"
description = "Adds a note."
module = "main.wasm"
input_schema = {ANY_OBJECT}
output_schema = {ANY_OBJECT}
{more}""".encode()


def entries(
    manifest_toml: bytes | None = None,
    *,
    modules: Mapping[str, bytes] | None = None,
    assets: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Everything but the signature."""
    from palyra.skills.package.manifest import parse_manifest

    text = manifest() if manifest_toml is None else manifest_toml
    built = {"main.wasm": wat(ECHO)} if modules is None else dict(modules)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in built.items()}
    parsed = parse_manifest(text)
    return {
        "skill.toml": text,
        "sbom.cdx.json": make_sbom(parsed.skill_id, parsed.version, digests),
        "provenance.json": make_provenance(digests, builder="urn:test", parameters={"lang": "wat"}),
        **{f"modules/{name}": data for name, data in built.items()},
        **{f"assets/{name}": data for name, data in (assets or {}).items()},
    }


def artifact(
    version: str = "1.0.0",
    *,
    signer: Ed25519Signer | None = None,
    modules: Mapping[str, bytes] | None = None,
    assets: Mapping[str, bytes] | None = None,
    **options: str,
) -> SkillArtifact:
    unsigned = pack_artifact(entries(manifest(version, **options), modules=modules, assets=assets))
    return sign_artifact(unsigned, signer or key(PUBLISHER))


def archive(version: str = "1.0.0", **options: Any) -> bytes:
    return artifact(version, **options).raw


class SkillHarness:
    """A registry on a journal of its own. ``registry()`` again is another daemon on the same state."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.journal = JournalHarness(folder)
        self.folder = folder / "artifacts"
        self.store: SqliteStore = self.journal.open(schema=SCHEMA, clock=SystemClock())

    def registry(self, **options: Any) -> SkillRegistry:
        return SkillRegistry(
            store=self.store,
            files=ArtifactFiles(self.folder),
            data=SkillFolders(StateDir.open(self.folder.parent / "state")),
            verifier_of=Ed25519Verifier.from_public_bytes,
            palyra_version="0.1.0",
            **options,
        )

    async def trusting(self, *publishers: str, **options: Any) -> SkillRegistry:
        registry = self.registry(**options)
        for publisher in publishers or (PUBLISHER,):
            await registry.trust_publisher(publisher, key(publisher).public_key(), actor=ACTOR)
        return registry

    async def approved(self, registry: SkillRegistry, version: str = "1.0.0", **options: Any) -> SkillVersion:
        installed = await registry.install(archive(version, **options), actor=ACTOR)
        return await registry.approve(installed.skill_id, installed.version, installed.digest, actor=ACTOR)

    def file(self, digest: str) -> Path:
        return self.folder / f"{digest}.skill"

    def events(self, kind: str = "") -> list[tuple[str, Any]]:
        found = self.store.events_since(0, 100_000, kind=kind)
        return [(event.kind, event.payload_value()) for event in found]

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events()]

    def close(self) -> None:
        self.store.close()
