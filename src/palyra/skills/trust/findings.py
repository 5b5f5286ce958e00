"""The rules of an audit: the severity of each, its meaning and the remedy."""

import os
from enum import StrEnum
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from palyra.errors import Denied
from palyra.skills.limits import MAX_EVIDENCE_CHARS
from palyra.wasm.domain.outcome import render_text


class Severity(StrEnum):
    """An error keeps a skill out; a warning is for the operator who approves; a note informs."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Rule(msgspec.Struct, frozen=True):
    severity: Severity
    id: str
    title: str
    remedy: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """``entry`` is the file in the archive, ``line`` a line of it where that makes sense."""

    id: str
    severity: Severity
    entry: str
    evidence: str
    remedy: str
    line: int | None = None


class AuditFailed(Denied):
    code = "skill.audit_failed"
    hint = "the findings of severity error say what keeps the skill out, and what to do"


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """``digest`` is that of the audited archive."""

    digest: str
    skill_id: str = ""
    version: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def failing(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    def require_passed(self) -> None:
        failing = self.failing
        if failing:
            first = failing[0]
            raise AuditFailed(
                f"the audit of {self.skill_id} {self.version} found {len(failing)} things that keep it out; "
                f"first {first.id}: {first.evidence}",
                findings=[msgspec.to_builtins(finding) for finding in failing],
            )


_error, _warning, _note = (partial(Rule, severity) for severity in Severity)
RULES: Final = {
    rule.id: rule
    for rule in (
        _error("signature", "The signature is missing or not that of this archive.", "Sign the archive as it is now."),
        _error("trust", "The signer is not trusted for this skill.", "List the publisher's key, or refuse the skill."),
        _error("sbom", "The SBOM does not match the modules.", "Build the skill again."),
        _error("provenance", "The provenance does not match the modules.", "Build the skill again."),
        _error("compatibility", "The skill needs a newer Palyra.", "Update Palyra, or use an older version."),
        _error("module-invalid", "A module is not valid WebAssembly.", "Build the module again."),
        _error("module-abi", "A module is of another kind than compat.abi says.", "Correct compat.abi or the build."),
        _error("unknown-import", "A module wants something Palyra does not offer.", "Remove the import."),
        _error("entrypoint-missing", "A tool's module has no entry point.", "Export `run`."),
        _error("entrypoint-type", "The entry point has the wrong type.", "Give it a type of the ABI."),
        _error("multiple-memories", "A core module has more than one memory.", "Build it with one memory."),
        _error("shared-memory", "A module has a shared or 64-bit memory.", "Build it without threads and memory64."),
        _error("memory-excess", "A module wants more memory than a skill can have.", "Declare a smaller memory."),
        _error("table-excess", "A module wants larger tables than a skill can have.", "Declare smaller tables."),
        _error("embedded-secret", "The archive holds what looks like a secret.", "Use the vault, and revoke it."),
        _warning("start-function", "Code runs before the entry point is called.", "Move it into `run`."),
        _warning("dangerous-export", "An export gives away internals.", "Export the ABI's functions only."),
        _warning("many-exports", "A module exports far more than the ABI needs.", "Export the ABI's functions only."),
        _warning("module-unused", "No tool runs in this module.", "Leave the module out."),
        _warning("capability-excess", "The skill asks for much.", "Ask for what the tools need and nothing else."),
        _warning("capability-wildcard", "The skill asks for a wildcard.", "Name what is needed."),
        _warning("secret-reveal", "The skill wants to see a secret's value.", "Attach the secret to requests instead."),
        _warning("capability-undeclared", "A module uses what was not asked for.", "Declare it or remove the import."),
        _warning("wasi-undeclared", "A module links parts of WASI that were not declared.", "List them in wasi."),
        _warning("url-not-allowed", "A module or asset names a host it may not reach.", "Ask for it or remove it."),
        _warning("content-crowded", "There is more than an audit looks at.", "Leave it out, or read it yourself."),
        _warning("risk-understated", "A tool of low risk is in a skill with reach.", "Call it medium or high."),
        _warning("configuration-secret", "The configuration asks for a secret.", "Use the vault instead."),
        _note("capability-unused", "A capability that no module can use.", "Do not ask for it."),
        _note("memory-unbounded", "A memory has no maximum of its own.", "Declare a maximum."),
    )
}


def finding(rule_id: str, entry: str, evidence: str, *, line: int | None = None) -> Finding:
    rule = RULES[rule_id]
    # Names of an archive's author are in it, and a person reads them in a terminal.
    readable = render_text(evidence, MAX_EVIDENCE_CHARS)
    return Finding(id=rule.id, severity=rule.severity, entry=entry, evidence=readable, remedy=rule.remedy, line=line)


SARIF_VERSION: Final = "2.1.0"
SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(report: AuditReport, *, tool_version: str, file: str = "") -> dict[str, Any]:
    """Write a report as SARIF 2.1.0, which code-scanning pages and editors read.

    ``file`` is the path of the archive; entries are named beneath it.
    """
    order = list(RULES)
    return {
        "$schema": SARIF_SCHEMA,
        "version": SARIF_VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "palyra skill audit",
                        "version": tool_version,
                        "rules": [
                            {
                                "id": rule.id,
                                "shortDescription": {"text": rule.title},
                                "help": {"text": rule.remedy},
                                "defaultConfiguration": {"level": rule.severity.value},
                            }
                            for rule in RULES.values()
                        ],
                    }
                },
                "artifacts": [{"location": {"uri": _uri(file)}, "hashes": {"sha-256": report.digest}}],
                "results": [
                    {
                        "ruleId": finding.id,
                        "ruleIndex": order.index(finding.id),
                        "level": finding.severity.value,
                        "message": {"text": f"{finding.evidence} {finding.remedy}"},
                        "locations": [{"physicalLocation": _location(file, finding.entry, finding.line)}],
                    }
                    for finding in report.findings
                ],
                "properties": {"skillId": report.skill_id, "skillVersion": report.version},
            }
        ],
    }


def _uri(*parts: str) -> str:
    """Make a reference by RFC 3986: a file's name may have any bytes, and a colon there would begin with a scheme."""
    return quote(os.fsencode("/".join(part for part in parts if part) or "skill"))


def _location(file: str, entry: str, line: int | None) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(file, entry)}}
    if line is not None:
        location["region"] = {"startLine": line}
    return location
