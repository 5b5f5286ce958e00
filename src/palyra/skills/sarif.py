"""An audit report as SARIF 2.1.0, which code-scanning pages and editors read."""

import os
from typing import Any, Final
from urllib.parse import quote

from palyra.skills.findings import RULES, AuditReport

SARIF_VERSION: Final = "2.1.0"
SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(report: AuditReport, *, tool_version: str, file: str = "") -> dict[str, Any]:
    """``file`` is where the archive lies; entries are named beneath it."""
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
    """A reference by RFC 3986: a file may have any bytes in its name, and a colon there would begin with a scheme."""
    return quote(os.fsencode("/".join(part for part in parts if part) or "skill"))


def _location(file: str, entry: str, line: int | None) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(file, entry)}}
    if line is not None:
        location["region"] = {"startLine": line}
    return location
