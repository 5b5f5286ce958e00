"""The audit over whole archives: statements, requests, modules and content together."""

from typing import Any

import pytest

from fakes.skill_harness import ECHO, PUBLISHER, artifact, entries, key, manifest, wat
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.skills.limits import MAX_FINDINGS_PER_RULE
from palyra.skills.package.artifact import SkillArtifact, pack_artifact
from palyra.skills.trust.audit import audit_skill_artifact_security
from palyra.skills.trust.findings import AuditReport, Finding
from palyra.skills.trust.publisher_keys import UntrustedPublisher
from palyra.skills.trust.signature import sign_artifact

HOST = "palyra:plugins/host-capabilities@0.1.0"


def audited(skill: SkillArtifact, **options: Any) -> AuditReport:
    return audit_skill_artifact_security(
        skill, **{"verifier_of": Ed25519Verifier.from_public_bytes, "palyra_version": "0.1.0", **options}
    )


def found(**options: Any) -> dict[str, Finding]:
    return {one.id: one for one in audited(artifact(**options)).findings}


def signed(parts: dict[str, bytes]) -> SkillArtifact:
    return sign_artifact(pack_artifact(parts), key(PUBLISHER))


def with_import(name: str, signature: str) -> dict[str, bytes]:
    line = f'(import "{HOST}" "{name}" (func {signature}))'
    return {"main.wasm": wat(ECHO.replace("(module", f"(module {line}", 1))}


def test_an_honest_skill_has_no_findings() -> None:
    report = audited(artifact())
    assert report.findings == () and (report.skill_id, report.version) == ("acme.notes", "1.0.0")


def test_each_statement_that_does_not_hold_is_an_error() -> None:
    unsigned = audited(pack_artifact(entries()))
    assert [one.id for one in unsigned.failing] == ["signature"]
    other = entries(modules={"main.wasm": wat("(module)")})
    for name, rule in (("sbom.cdx.json", "sbom"), ("provenance.json", "provenance")):
        report = audited(signed({**entries(), name: other[name]}))
        assert [one.id for one in report.failing] == [rule]
    distrusted = audited(artifact(), distrust=UntrustedPublisher("nobody knows them"))
    assert [(one.id, one.evidence) for one in distrusted.failing] == [("trust", "nobody knows them")]


def test_a_newer_palyra_is_needed() -> None:
    skill = artifact(more='\n[compat]\nmin_palyra_version = "0.2.0"\n')
    (finding,) = audited(skill).findings
    assert finding.id == "compatibility" and finding.line == manifest().count(b"\n") + 3
    assert audited(skill, palyra_version="0.2.0").findings == ()
    assert audited(skill, palyra_version="0.1.dev7").findings == ()


def test_much_asked_wildcards_and_revealed_secrets_are_pointed_out_with_their_lines() -> None:
    hosts = ", ".join(f'"h{number}.io"' for number in range(9))
    many = found(
        capabilities=f'http_egress_allowlist = [{hosts}, "*.acme.io"]\nsecrets = ["t"]\nreveal_secrets = ["t"]\n'
        'wildcard_opt_in = ["http"]'
    )
    assert many["capability-excess"].line == many["capability-wildcard"].line == 8
    assert many["secret-reveal"].line == 10


def test_low_risk_with_reach_and_a_secret_in_the_configuration() -> None:
    more = '[operator.configuration]\nschema = { type = "object", properties = { api_key = { type = "string" } } }\n'
    recorded = found(capabilities='channels = ["a"]', more='risk = "low"\n' + more)
    assert {"risk-understated", "configuration-secret"} <= recorded.keys()
    assert "risk-understated" not in found(more='risk = "low"\n')


def test_capabilities_and_imports_are_held_against_each_other() -> None:
    send = with_import("channel-send", "(param i32 i32 i32) (result i32)")
    assert "capability-undeclared" in found(modules=send)
    assert found(modules=send, capabilities='channels = ["a"]') == {}
    assert "capability-unused" in found(capabilities='channels = ["a"]')
    counting = with_import("channel-handle", "(param i32) (result i32)")
    assert found(modules=counting, capabilities='channels = ["a"]') == {}


def test_wasi_is_declared_or_pointed_out() -> None:
    line = '(import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))'
    clock = {"main.wasm": wat(ECHO.replace("(module", f"(module {line}", 1))}
    assert "clocks" in found(modules=clock)["wasi-undeclared"].evidence
    assert found(modules=clock, capabilities='wasi = ["clocks"]') == {}


def test_of_one_rule_only_so_many_are_listed() -> None:
    imports = "".join(f'(import "env" "f{number}" (func))' for number in range(50))
    report = audited(artifact(modules={"main.wasm": wat(ECHO.replace("(module", f"(module {imports}", 1))}))
    assert len(report.findings) == MAX_FINDINGS_PER_RULE + 1 and "30 more" in report.findings[-1].evidence


def test_failing_findings_come_first() -> None:
    modules = {"main.wasm": wat(ECHO), "extra.wasm": wat('(module (import "env" "x" (func)))')}
    report = audited(artifact(modules=modules))
    assert [one.id for one in report.findings] == ["unknown-import", "module-unused"]


@pytest.mark.parametrize("bad", [b"", b"\0asm", b"\0asm\x01\0\0\0\x01\xff", b"#!/bin/sh\n"])
def test_what_is_no_module_is_an_error(bad: bytes) -> None:
    assert found(modules={"main.wasm": bad}).keys() == {"module-invalid"}
