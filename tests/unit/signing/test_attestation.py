import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.canonical import canonical_json, digest_of
from palyra.clock import rfc3339
from palyra.signing.dsse import sign_envelope
from palyra.signing.ed25519 import Ed25519Signer
from palyra.signing.tool_attestation import (
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    AttestationDigestMismatch,
    AttestationKeyUnknown,
    AttestationMalformed,
    AttestationVersionUnknown,
    DocumentDisagrees,
    ToolAttestation,
    attest,
    execution_sha256,
    verify_attestation,
    verify_call_document,
    verify_evidence,
)

DAEMON = Ed25519Signer.generate()
WORKER = Ed25519Signer.generate()
RESULT = {"text": "hi", "ratio": 0.5}
CALL = ToolAttestation(
    call_id="01JCT0000000000000000000CA",
    run_id="01JCT0000000000000000000RN",
    principal="agent:cli",
    tool="echo",
    argument_digest="ab" * 32,
    decision="allow",
    policies=("base.tools", "base.principals"),
    bundle_digest="cd" * 32,
    approval_id="01JCT0000000000000000000AP",
    executor="builtin",
    receipt=({"layer": "deadline", "asked": 30000, "got": 30000}, {"layer": "output", "asked": 10, "got": 10}),
    outcome="succeeded",
    output_digest=digest_of(RESULT),
    started_ms=1_700_000_000_000,
    ended_ms=1_700_000_000_123,
)


def call_view(about: ToolAttestation = CALL, /, **changes: Any) -> dict[str, Any]:
    return {
        "call_id": about.call_id,
        "run_id": about.run_id,
        "tool": about.tool,
        "principal": about.principal,
        "status": about.outcome,
        "decision": {
            "outcome": about.decision,
            "policies": list(about.policies),
            "reasons": ["said so"],
            "bundle_digest": about.bundle_digest,
        },
        "approval_id": about.approval_id,
        "result": RESULT,
        "receipt": list(about.receipt),
        "attestation": attest(about, [DAEMON]).to_dict(),
        "created_at": rfc3339(1_699_999_999_999),
        "started_at": rfc3339(about.started_ms),
        "ended_at": rfc3339(about.ended_ms),
        "duration_ms": 123,
        "argument_digest": about.argument_digest,
        **changes,
    }


def raw(document: Any) -> bytes:
    return json.dumps(document).encode()


@pytest.mark.promise("P-evidence")
def test_the_statement_is_in_toto_v1() -> None:
    statement = CALL.to_statement()
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://palyra.dev/attestation/tool-call/v1"
    assert statement["subject"] == [{"name": f"tool-call/{CALL.call_id}", "digest": {"sha256": execution_sha256(CALL)}}]
    assert set(statement["predicate"]) == set(ToolAttestation.__struct_fields__)


def test_the_digest_of_one_execution_never_changes() -> None:
    """A frozen vector: if this fails, the encoding changed and needs a new version."""
    assert execution_sha256(CALL) == "1b1019f8277b171247ed56439adab46165f87bca41c99542463d9539e1e2dfe7"


@pytest.mark.promise("P-evidence")
def test_every_field_moves_the_digest() -> None:
    changes: dict[str, Any] = {
        "policies": ("base.tools",),
        "approval_id": None,
        "receipt": CALL.receipt[:1],
        "started_ms": 1,
        "ended_ms": 2,
    }
    digests = {execution_sha256(CALL)}
    for name in ToolAttestation.__struct_fields__:
        digests.add(execution_sha256(msgspec.structs.replace(CALL, **{name: changes.get(name, "other")})))
    assert len(digests) == 1 + len(ToolAttestation.__struct_fields__)


@given(st.lists(st.text(max_size=6), max_size=4), st.lists(st.text(max_size=6), max_size=4))
def test_text_cannot_move_between_neighbours(left: list[str], right: list[str]) -> None:
    one = msgspec.structs.replace(CALL, policies=tuple(left), bundle_digest="".join(right))
    other = msgspec.structs.replace(CALL, policies=tuple(right), bundle_digest="".join(left))
    assert (execution_sha256(one) == execution_sha256(other)) == (one == other)


def test_none_and_the_word_none_differ() -> None:
    none, word, empty = (msgspec.structs.replace(CALL, approval_id=value) for value in (None, "none", ""))
    assert len({execution_sha256(none), execution_sha256(word), execution_sha256(empty)}) == 3


def test_verifies_what_was_attested_by_one_or_several() -> None:
    assert verify_attestation(attest(CALL, [DAEMON]).to_json(), [DAEMON.verifier()]) == CALL
    both = attest(CALL, [DAEMON, WORKER]).to_json()
    assert verify_attestation(both, [WORKER.verifier(), DAEMON.verifier()]) == CALL
    with pytest.raises(AttestationKeyUnknown) as caught:
        verify_attestation(both, [DAEMON.verifier()])
    assert caught.value.details["key_id"] == WORKER.key_id


def signed(statement: Any) -> bytes:
    """What a known but wrong signer could issue."""
    payload = statement if isinstance(statement, bytes) else canonical_json(statement)
    return sign_envelope(PAYLOAD_TYPE, payload, [DAEMON]).to_json()


def changed(**changes: Any) -> dict[str, Any]:
    return {**CALL.to_statement(), **changes}


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (changed(_type="https://in-toto.io/Statement/v2"), AttestationVersionUnknown),
        (changed(predicateType=PREDICATE_TYPE.replace("v1", "v2")), AttestationVersionUnknown),
        (changed(predicateType=None), AttestationVersionUnknown),
        (changed(subject=[]), AttestationDigestMismatch),
        (changed(subject=CALL.to_statement()["subject"] * 2), AttestationDigestMismatch),
        (changed(predicate={**CALL.to_statement()["predicate"], "tool": "fs.write"}), AttestationDigestMismatch),
        (changed(predicate={**CALL.to_statement()["predicate"], "extra": 1}), AttestationMalformed),
        (changed(predicate={**CALL.to_statement()["predicate"], "started_ms": "1"}), AttestationMalformed),
        (changed(predicate={**CALL.to_statement()["predicate"], "started_ms": 10**15}), AttestationMalformed),
        (changed(predicate={**CALL.to_statement()["predicate"], "receipt": ["x"]}), AttestationMalformed),
        (changed(predicate=None), AttestationMalformed),
        (changed(extra=1), AttestationMalformed),
        (json.dumps(CALL.to_statement(), indent=1).encode(), AttestationMalformed),
        (b'{"_type":"a","_type":"b"}', AttestationMalformed),
        (b"[]", AttestationMalformed),
        (b"", AttestationMalformed),
    ],
)
def test_a_valid_signature_does_not_excuse_a_wrong_statement(statement: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        verify_attestation(signed(statement), [DAEMON.verifier()])


def test_a_whole_document_verifies_in_both_forms() -> None:
    known = [DAEMON.verifier()]
    assert verify_call_document(raw(call_view()), known) == CALL
    assert verify_call_document(raw({"ok": True, "data": call_view()}), known) == CALL
    without = {key: value for key, value in call_view().items() if key not in {"approval_id", "argument_digest"}}
    assert verify_call_document(raw({**without, "approval": {"id": CALL.approval_id, "state": "consumed"}}), known)


def test_a_call_without_result_attests_the_digest_of_null() -> None:
    failed = msgspec.structs.replace(CALL, outcome="failed", output_digest=digest_of(None))
    view = call_view(failed, result=None)
    for document in (view, {"ok": False, "error": {"code": "call.tool_failed", "details": {"call": view}}}):
        assert verify_call_document(raw(document), [DAEMON.verifier()]) == failed


DECISION = call_view()["decision"]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("call_id", {"call_id": "other"}),
        ("run_id", {"run_id": "other"}),
        ("tool", {"tool": "fs.read"}),
        ("principal", {"principal": "user:root"}),
        ("status", {"status": "failed"}),
        ("decision.outcome", {"decision": {**DECISION, "outcome": "deny"}}),
        ("decision.policies", {"decision": {**DECISION, "policies": ["base.tools"]}}),
        ("decision.policies", {"decision": {**DECISION, "policies": list(reversed(DECISION["policies"]))}}),
        ("decision.bundle_digest", {"decision": {**DECISION, "bundle_digest": "00" * 32}}),
        ("receipt", {"receipt": []}),
        ("receipt", {"receipt": [{**CALL.receipt[0], "got": 1}, CALL.receipt[1]]}),
        ("receipt", {"receipt": None}),
        ("result", {"result": {**RESULT, "text": "ho"}}),
        ("result", {"result": None}),
        ("argument_digest", {"argument_digest": "00" * 32}),
        ("approval_id", {"approval_id": "other"}),
        ("approval.id", {"approval": {"id": "other"}}),
        ("approval.id", {"approval": "other"}),
        ("started_at", {"started_at": rfc3339(0)}),
        ("ended_at", {"ended_at": rfc3339(0)}),
    ],
)
def test_a_document_that_says_otherwise_is_refused(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(DocumentDisagrees) as caught:
        verify_call_document(raw({"ok": True, "data": call_view(**change)}), [DAEMON.verifier()])
    assert caught.value.details["field"] == field


@pytest.mark.parametrize(
    "document",
    [
        {"ok": True, "data": None},
        {"ok": False, "error": {"code": "x"}},
        call_view(attestation=None),
        call_view(attestation={"payload": ""}),
        call_view(decision=None),
        call_view(result=2**60),
        [],
    ],
)
def test_what_is_no_call_is_malformed(document: Any) -> None:
    with pytest.raises(AttestationMalformed):
        verify_call_document(raw(document), [DAEMON.verifier()])


def test_evidence_is_either_form_and_names_the_signers() -> None:
    known = [DAEMON.verifier(), WORKER.verifier()]
    bare = verify_evidence(attest(CALL, [DAEMON, WORKER]).to_json(), known)
    assert (bare.kind, bare.attestation, bare.key_ids) == ("attestation", CALL, (DAEMON.key_id, WORKER.key_id))
    whole = verify_evidence(raw({"ok": True, "data": call_view()}), known)
    assert (whole.kind, whole.attestation, whole.key_ids) == ("call", CALL, (DAEMON.key_id,))
    with pytest.raises(AttestationMalformed):
        verify_evidence(b"not json", known)


@pytest.mark.promise("P-evidence")
def test_the_type_names_are_the_published_ones() -> None:
    assert STATEMENT_TYPE == "https://in-toto.io/Statement/v1"
    assert PAYLOAD_TYPE == "application/vnd.in-toto+json"
