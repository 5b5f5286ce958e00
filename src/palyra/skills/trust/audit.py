"""``audit_skill_artifact_security``: finds everything about an archive that shows without running it."""

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

import msgspec

from palyra.config.toml_lines import Path, line_at, lines_of
from palyra.egress.domain.rules import HostRule, find_rule, parse_rules
from palyra.egress.domain.target import canonical_host
from palyra.errors import PalyraError
from palyra.journal.redaction import names_a_secret
from palyra.skills.limits import (
    MANY_CHANNELS,
    MANY_HOSTS,
    MANY_ROOTS,
    MANY_SECRETS,
    MAX_AUDITED_PLACES,
    MAX_FINDINGS_PER_RULE,
)
from palyra.skills.package.artifact import ASSETS, MODULES, PROVENANCE_NAME, SBOM_NAME, SIGNATURE_NAME, SkillArtifact
from palyra.skills.package.capabilities import STAR
from palyra.skills.package.manifest import MANIFEST_NAME, MalformedVersion, SkillManifest, ToolRisk, Version
from palyra.skills.package.supply_chain import require_provenance, require_sbom
from palyra.skills.trust.findings import AuditReport, Finding, finding
from palyra.skills.trust.module_audit import ModuleUse, audit_module
from palyra.skills.trust.signature import VerifierOf, verify_signature
from palyra.wasm.domain.grants import Capability

_SHOWN_HOSTS: Final = 5


class _Credential(msgspec.Struct, frozen=True):
    """``starts`` are looked for first: a search for fixed bytes is a hundred times faster than one for a pattern."""

    what: str
    starts: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


def _credential(what: str, starts: tuple[bytes, ...], rest: bytes) -> _Credential:
    return _Credential(what, starts, re.compile(rb"(?<![A-Za-z0-9])" + rest))


# Credentials whose form distinguishes them from chance. The value itself is never printed.
_CREDENTIALS: Final = (
    _credential(
        "a private key",
        (b"-----BEGIN ",),
        rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----[\r\n]+[A-Za-z0-9+/=\r\n]{40}",
    ),
    _credential("an AWS access key", (b"AKIA", b"ASIA"), rb"A[KS]IA[A-Z2-7]{16}(?![A-Z0-9])"),
    _credential(
        "a GitHub token",
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
        rb"(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{82})",
    ),
    _credential("a GitLab token", (b"glpat-",), rb"glpat-[A-Za-z0-9_-]{20}"),
    _credential("a Slack token", (b"xox",), rb"xox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{10,}"),
    _credential("a Google API key", (b"AIza",), rb"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _credential("a Stripe key", (b"sk_live_", b"rk_live_"), rb"[rs]k_live_[A-Za-z0-9]{24,}"),
    _credential("an npm token", (b"npm_",), rb"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _credential("an API key", (b"sk-ant-", b"sk-proj-"), rb"sk-(?:ant-|proj-)[A-Za-z0-9_-]{32,}"),
    _credential("a Palyra token", (b"plr_",), rb"plr_[A-Za-z0-9_-]{32,}"),
    _credential(
        "a password in an address",
        (b"http://", b"https://"),
        rb"https?://[^\s/@:\"'<>]{1,64}:[^\s/@\"'<>]{4,64}@[A-Za-z0-9.-]+\.[a-z]+",
    ),
)
_SCHEMES: Final = (b"http", b"https", b"ws", b"wss")
_LONGEST_SCHEME: Final = max(map(len, _SCHEMES))
# Behind a scheme, as it is and as JSON may escape it.
_SLASHES: Final = (b"://", b":\\/\\/")
_NAME: Final = rb"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)"
# In brackets an IPv6 address, in its longest spelling with the last part written as IPv4; a zone makes it no other.
_IPV6: Final = rb"\[(?P<ipv6>[0-9A-Fa-f:.]{2,45})(?:%[^\]\"'<>\x00-\x20\x7f-\xff]{0,64})?\]"
_HOST: Final = rb"(?:" + _NAME + rb"|" + _IPV6 + rb")(?::(?P<port>[0-9]{1,5}))?"
# Without and with a user before the host. In a text the end of an address is not certain, so both are tried.
_AUTHORITIES: Final = (
    re.compile(rb":(?:\\?/){2}" + _HOST),
    re.compile(rb":(?:\\?/){2}[^/@\"'<>\\?#\x00-\x20\x7f-\xff]{0,128}@" + _HOST),
)
# A last part that is a number makes many programs read the whole as an IPv4 address: ``127.1``, ``0x7f000001``.
_IPV4_IN_SOME_PROGRAMS: Final = re.compile(r"(?:[0-9a-z_-]{1,63}\.){0,3}(?:[0-9]+|0x[0-9a-f]*)", re.IGNORECASE)
# Names that lead nowhere: RFC 2606 and the machine itself.
_EXAMPLES: Final = (".example", ".invalid", ".test", ".localhost", ".example.com", ".example.net", ".example.org")


class _TooMany(Exception):
    """The archive has more places than an audit examines."""


class _Places:
    """Finds places of one kind in a whole archive. An archive beyond the limit was built to delay the audit."""

    def __init__(self) -> None:
        self._left = MAX_AUDITED_PLACES

    def of(self, data: bytes, starts: tuple[bytes, ...]) -> Iterator[int]:
        for start in starts:
            at = data.find(start)
            while at >= 0:
                if not self._left:
                    raise _TooMany
                self._left -= 1
                yield at
                at = data.find(start, at + 1)


def audit_content(artifact: SkillArtifact) -> Iterator[Finding]:
    allowed = parse_rules(artifact.manifest.capabilities.http_egress_allowlist)
    addresses, places = _Places(), {credential.what: _Places() for credential in _CREDENTIALS}
    for entry, data in artifact.signed_entries():
        for credential in _CREDENTIALS:
            try:
                found = _first(data, credential, places[credential.what])
            except _TooMany:
                yield finding("content-crowded", entry, f"too many places that may be {credential.what}")
                continue
            if found is not None:
                line = None if b"\0" in data[:1024] else data.count(b"\n", 0, found.start()) + 1
                yield finding("embedded-secret", entry, f"{credential.what} at byte {found.start()}", line=line)
        if entry.startswith((MODULES, ASSETS)):
            yield from _hosts(entry, data, allowed, addresses)


def _first(data: bytes, credential: _Credential, places: _Places) -> re.Match[bytes] | None:
    matches = (credential.pattern.match(data, at) for at in places.of(data, credential.starts))
    return next((found for found in matches if found is not None), None)


def _hosts(entry: str, data: bytes, allowed: tuple[HostRule, ...], places: _Places) -> Iterator[Finding]:
    """Make one finding for each entry, however many names: an interpreter's own documentation has dozens."""
    authorities: dict[tuple[str, bytes | None], None] = {}
    try:
        for at in places.of(data, _SLASHES):
            if data[max(0, at - _LONGEST_SCHEME) : at].lower().endswith(_SCHEMES):
                matches = (pattern.match(data, at) for pattern in _AUTHORITIES)
                authorities |= {(_host(found), found["port"]): None for found in matches if found is not None}
    except _TooMany:
        yield finding("content-crowded", entry, "too many addresses")
    named: dict[str, None] = {}
    for name, number in authorities:
        try:
            host = canonical_host(name)
        except PalyraError:
            if _IPV4_IN_SOME_PROGRAMS.fullmatch(name):
                # A manifest cannot request it in this spelling, so it is in no list of requests.
                named[name] = None
            continue
        port = int(number) if number else None
        harmless = f".{host}".endswith(_EXAMPLES) or not ("." in host or ":" in host)
        if not harmless and find_rule(allowed, host, port) is None:
            named[f"[{host}]" if ":" in host else host] = None
    if named:
        hosts = list(named)
        shown = ", ".join(hosts[:_SHOWN_HOSTS])
        rest = f" and {len(hosts) - _SHOWN_HOSTS} more" if len(hosts) > _SHOWN_HOSTS else ""
        yield finding("url-not-allowed", entry, f"it names {shown}{rest}")


def _host(found: re.Match[bytes]) -> str:
    name, address = found["name"], found["ipv6"]
    return name.decode("ascii") if address is None else f"[{address.decode('ascii')}]"


_MANIFEST_KEYS: Final = {
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
    """List every finding, the failing ones first. ``distrust`` is the reason not to trust the signer, if known."""
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
    """Compare the requests with what the modules can use."""
    asked = manifest.capabilities
    declared = {
        Capability.HTTP: bool(asked.http_egress_allowlist),
        Capability.SECRET: bool(asked.secrets),
        Capability.STORAGE: bool(asked.filesystem.read_roots or asked.filesystem.write_roots),
        Capability.CHANNEL: bool(asked.channels),
    }
    for kind, wanted in declared.items():
        key = _MANIFEST_KEYS[kind]
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
    """Sort by weight, and keep at most as many of one rule as a person still reads."""
    weight = {"error": 0, "warning": 1, "note": 2}
    ordered = sorted(found, key=lambda one: (weight[one.severity], one.id))
    for rule, group in groupby(ordered, key=lambda one: one.id):
        members = list(group)
        yield from members[:MAX_FINDINGS_PER_RULE]
        if len(members) > MAX_FINDINGS_PER_RULE:
            yield finding(rule, "", f"and {len(members) - MAX_FINDINGS_PER_RULE} more of the same kind")
