"""``audit_skill_artifact_security``: everything that can be said about an archive without running it."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

from palyra.errors import PalyraError
from palyra.journal.redact import names_a_secret
from palyra.skills.artifact import MODULES, PROVENANCE_NAME, SBOM_NAME, SIGNATURE_NAME, SkillArtifact
from palyra.skills.audit_content import audit_content
from palyra.skills.audit_modules import ModuleUse, audit_module
from palyra.skills.capabilities import STAR
from palyra.skills.findings import AuditReport, Finding, finding
from palyra.skills.limits import (
    MANY_CHANNELS,
    MANY_HOSTS,
    MANY_ROOTS,
    MANY_SECRETS,
    MAX_FINDINGS_PER_RULE,
)
from palyra.skills.manifest import MANIFEST_NAME, SkillManifest, ToolRisk
from palyra.skills.provenance import require_provenance
from palyra.skills.sbom import require_sbom
from palyra.skills.semver import MalformedVersion, Version
from palyra.skills.signature import VerifierOf, verify_signature
from palyra.skills.toml_lines import Path, line_at, lines_of
from palyra.wasm.grants import Capability

_KIND_IN_WORDS: Final = {
    Capability.HTTP: "http_egress_allowlist",
    Capability.SECRET: "secrets",
    Capability.STORAGE: "filesystem",
    Capability.CHANNEL: "channels",
}


def audit_skill_artifact_security(
    artifact: SkillArtifact,
    *,
    verifier_of: VerifierOf,
    palyra_version: str,
    distrust: PalyraError | None = None,
) -> AuditReport:
    """Every finding, the failing ones first. ``distrust`` is why the signer is not trusted, where that was asked."""
    manifest = artifact.manifest
    lines = lines_of(artifact.manifest_bytes.decode("utf-8"))
    found = [
        *_refused(lambda: verify_signature(artifact, verifier_of), "signature", SIGNATURE_NAME),
        *_refused(lambda: require_sbom(artifact), "sbom", SBOM_NAME),
        *_refused(lambda: require_provenance(artifact), "provenance", PROVENANCE_NAME),
        *([finding("trust", SIGNATURE_NAME, distrust.message)] if distrust is not None else ()),
        *_compatibility(manifest, palyra_version, lines),
        *_requests(manifest, lines),
    ]
    uses: list[ModuleUse] = []
    for name, module in sorted(artifact.modules.items()):
        use, findings = audit_module(name, module, manifest)
        uses.append(use)
        found += findings
        if name not in manifest.modules():
            found.append(finding("module-unused", f"{MODULES}{name}", f"no tool of the manifest runs in {name}"))
    found += _use_of_requests(manifest, uses, lines)
    found += audit_content(artifact)
    return AuditReport(
        digest=artifact.digest, skill_id=manifest.skill_id, version=manifest.version, findings=tuple(_bounded(found))
    )


def _refused(check: Callable[[], object], rule: str, entry: str) -> Iterator[Finding]:
    try:
        check()
    except PalyraError as error:
        yield finding(rule, entry, error.message)


def _compatibility(manifest: SkillManifest, palyra_version: str, lines: dict[Path, int]) -> Iterator[Finding]:
    least = manifest.compat.min_palyra_version
    if not least:
        return
    try:
        ours = Version.parse(palyra_version)
    except MalformedVersion:
        # A development build has a version of another shape; what it can do is its developer's business.
        return
    if ours < Version.parse(least):
        line = line_at(lines, ("compat", "min_palyra_version"))
        yield finding("compatibility", MANIFEST_NAME, f"it needs Palyra {least}, and this is {ours}", line=line)


def _requests(manifest: SkillManifest, lines: dict[Path, int]) -> Iterator[Finding]:
    asked = manifest.capabilities
    for key, listed, many in (
        ("http_egress_allowlist", asked.http_egress_allowlist, MANY_HOSTS),
        ("secrets", asked.secrets, MANY_SECRETS),
        ("channels", asked.channels, MANY_CHANNELS),
        ("filesystem", (*asked.filesystem.read_roots, *asked.filesystem.write_roots), MANY_ROOTS),
    ):
        line = line_at(lines, ("capabilities", key))
        if len(listed) > many:
            yield finding("capability-excess", MANIFEST_NAME, f"{key} lists {len(listed)} entries", line=line)
        for entry in listed:
            if STAR in entry:
                yield finding("capability-wildcard", MANIFEST_NAME, f"{key} lists {entry}", line=line)
    line = line_at(lines, ("capabilities", "reveal_secrets"))
    for ref in asked.reveal_secrets:
        yield finding("secret-reveal", MANIFEST_NAME, f"it wants to see the value of {ref}", line=line)
    reach = asked.http_egress_allowlist or asked.secrets or asked.channels or asked.device or asked.node
    for index, tool in enumerate(manifest.tools):
        if reach and tool.risk is ToolRisk.LOW:
            line = line_at(lines, ("entrypoints", "tools", index, "risk"))
            evidence = f"{tool.id} is called low risk, and the skill reaches beyond its own storage"
            yield finding("risk-understated", MANIFEST_NAME, evidence, line=line)
    properties = (manifest.operator.configuration_schema or {}).get("properties")
    for key in properties if isinstance(properties, dict) else ():
        if names_a_secret(key):
            line = line_at(lines, ("operator", "configuration", "schema"))
            yield finding("configuration-secret", MANIFEST_NAME, f"the configuration has the key {key!r}", line=line)


def _use_of_requests(manifest: SkillManifest, uses: list[ModuleUse], lines: dict[Path, int]) -> Iterator[Finding]:
    """What is asked for and what modules can use, held against each other."""
    asked = manifest.capabilities
    declared = {
        Capability.HTTP: bool(asked.http_egress_allowlist),
        Capability.SECRET: bool(asked.secrets),
        Capability.STORAGE: bool(asked.filesystem.read_roots or asked.filesystem.write_roots),
        Capability.CHANNEL: bool(asked.channels),
    }
    for kind, wanted in declared.items():
        key = _KIND_IN_WORDS[kind]
        users = [use for use in uses if kind in use.capabilities]
        if wanted and not users and not any(use.is_opaque for use in uses):
            line = line_at(lines, ("capabilities", key))
            yield finding("capability-unused", MANIFEST_NAME, f"no module imports what {key} would serve", line=line)
        for use in users:
            if not wanted and not use.is_opaque:
                evidence = f"it imports {kind.value} functions, and {key} is empty"
                yield finding("capability-undeclared", f"{MODULES}{use.module}", evidence)
    for use in uses:
        undeclared = sorted(use.wasi - set(asked.wasi))
        if undeclared:
            evidence = f"it links WASI {', '.join(undeclared)}: stubs that give it nothing"
            yield finding("wasi-undeclared", f"{MODULES}{use.module}", evidence)


def _bounded(found: list[Finding]) -> Iterator[Finding]:
    """Sorted by weight; of one rule at most so many that a person still reads them."""
    weight = {"error": 0, "warning": 1, "note": 2}
    ordered = sorted(found, key=lambda one: (weight[one.severity], one.id))
    for rule, group in groupby(ordered, key=lambda one: one.id):
        members = list(group)
        yield from members[:MAX_FINDINGS_PER_RULE]
        if len(members) > MAX_FINDINGS_PER_RULE:
            yield finding(rule, "", f"and {len(members) - MAX_FINDINGS_PER_RULE} more of the same kind")
