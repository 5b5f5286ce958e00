import re
from pathlib import Path

import pytest

import palyra.skills
from palyra.skills.limits import MAX_EVIDENCE_CHARS
from palyra.skills.trust.findings import RULES, AuditFailed, AuditReport, Severity, finding


def test_every_rule_is_used_and_every_used_rule_is_in_the_table() -> None:
    folder = Path(palyra.skills.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("trust/*.py"))
    named = set(re.findall(r'finding\(\s*"([a-z-]+)"', text)) | set(re.findall(r'"([a-z-]+)", [A-Z]+_NAME\)', text))
    assert named == set(RULES)


def test_only_errors_fail() -> None:
    report = AuditReport(
        digest="d", findings=(finding("start-function", "e", "x"), finding("memory-unbounded", "e", "x"))
    )
    report.require_passed()
    failing = AuditReport(digest="d", findings=(*report.findings, finding("sbom", "sbom.cdx.json", "no")))
    assert [one.id for one in failing.failing] == ["sbom"]
    with pytest.raises(AuditFailed) as refused:
        failing.require_passed()
    assert refused.value.details["findings"][0]["remedy"] == RULES["sbom"].remedy


def test_evidence_is_bounded_and_a_finding_has_its_rules_severity() -> None:
    found = finding("unknown-import", "modules/a.wasm", "x" * 1000, line=3)
    assert len(found.evidence) == MAX_EVIDENCE_CHARS and found.severity is Severity.ERROR and found.line == 3
