"""Attacks on a finished call's evidence: change it, strip it, swap it, replay it. Each is refused with its code."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.canonical import digest_of
from palyra.errors import Tampered
from palyra.signing.dsse import sign_envelope
from palyra.signing.ed25519 import Ed25519Signer
from palyra.signing.tool_attestation import (
    PAYLOAD_TYPE,
    ToolAttestation,
    attest,
    execution_sha256,
    verify_attestation,
    verify_call_document,
)

pytestmark = pytest.mark.promise("P-evidence")

DAEMON = Ed25519Signer.generate()
MALLORY = Ed25519Signer.generate()
KNOWN = [DAEMON.verifier()]
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493


def call(**changes: Any) -> ToolAttestation:
    return ToolAttestation(
        **{
            "call_id": "01JCT0000000000000000000CA",
            "run_id": "01JCT0000000000000000000RN",
            "principal": "agent:mallory",
            "tool": "fs.write",
            "argument_digest": "ab" * 32,
            "decision": "allow",
            "policies": ("base",),
            "bundle_digest": "cd" * 32,
            "executor": "builtin",
            "receipt": ({"layer": "openat2", "got": "beneath"},),
            "outcome": "failed",
            "output_digest": digest_of(None),
            "started_ms": 1_000,
            "ended_ms": 2_000,
            **changes,
        }
    )


def refused_with(raw: bytes) -> str:
    with pytest.raises(Tampered) as caught:
        verify_attestation(raw, KNOWN)
    return caught.value.code


def dumped(document: Any) -> bytes:
    return json.dumps(document).encode()


def with_payload(envelope: dict[str, Any], statement: dict[str, Any]) -> bytes:
    payload = base64.b64encode(json.dumps(statement, separators=(",", ":"), sort_keys=True).encode()).decode()
    return dumped({**envelope, "payload": payload})


def test_a_failed_call_cannot_be_dressed_up_as_succeeded() -> None:
    envelope = attest(call(), [DAEMON]).to_dict()
    better = call(outcome="succeeded").to_statement()
    assert refused_with(with_payload(envelope, better)) == "attestation.signature"


def test_an_attacker_cannot_sign_in_the_daemons_name() -> None:
    forged = attest(call(), [MALLORY]).to_dict()
    assert refused_with(dumped(forged)) == "attestation.unknown_key"
    forged["signatures"][0]["keyid"] = DAEMON.key_id
    assert refused_with(dumped(forged)) == "attestation.signature"


def test_signatures_cannot_be_stripped_swapped_or_padded_out() -> None:
    envelope = attest(call(), [DAEMON]).to_dict()
    other = attest(call(tool="echo"), [DAEMON]).to_dict()
    mallory = attest(call(), [MALLORY]).to_dict()["signatures"]
    assert refused_with(dumped({**envelope, "signatures": []})) == "attestation.malformed"
    assert refused_with(dumped({**envelope, "signatures": other["signatures"]})) == "attestation.signature"
    assert (
        refused_with(dumped({**envelope, "signatures": envelope["signatures"] + mallory})) == "attestation.unknown_key"
    )
    assert refused_with(dumped({**envelope, "signatures": envelope["signatures"] * 2})) == "attestation.malformed"


def test_a_compromised_writer_cannot_keep_the_digest_and_change_a_field() -> None:
    """The key itself signs a statement whose digest is of other fields: re-derivation finds it."""
    statement = call().to_statement()
    for field, value in (("receipt", []), ("outcome", "succeeded"), ("ended_ms", 1), ("policies", ["other"])):
        lie = {**statement, "predicate": {**statement["predicate"], field: value}}
        payload = json.dumps(lie, separators=(",", ":"), sort_keys=True).encode()
        assert refused_with(sign_envelope(PAYLOAD_TYPE, payload, [DAEMON]).to_json()) == "attestation.digest_mismatch"


def test_another_signed_thing_does_not_pass_as_an_attestation() -> None:
    checkpoint = sign_envelope("application/vnd.palyra.checkpoint+json", b"{}", [DAEMON])
    assert refused_with(checkpoint.to_json()) == "attestation.malformed"
    relabelled = {**checkpoint.to_dict(), "payloadType": PAYLOAD_TYPE}
    assert refused_with(dumped(relabelled)) == "attestation.signature"


def test_a_signature_has_no_second_form() -> None:
    """Ed25519 with S + L instead of S verifies in careless libraries."""
    envelope = attest(call(), [DAEMON]).to_dict()
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    twin = int.from_bytes(signature[32:], "little") + GROUP_ORDER
    envelope["signatures"][0]["sig"] = base64.b64encode(signature[:32] + twin.to_bytes(32, "little")).decode()
    assert refused_with(dumped(envelope)) == "attestation.signature"


def test_duplicate_keys_show_no_second_face() -> None:
    text = attest(call(), [DAEMON]).to_json().decode()
    two_faced = text.replace('{"payloadType"', '{"payload":"e30=","payloadType"', 1)
    assert refused_with(two_faced.encode()) == "attestation.malformed"


def test_a_genuine_attestation_does_not_vouch_for_another_document() -> None:
    genuine = attest(call(), [DAEMON]).to_dict()
    document = {
        "call_id": "01JCT0000000000000000000CB",
        "run_id": call().run_id,
        "tool": "fs.write",
        "principal": "agent:mallory",
        "status": "failed",
        "decision": {"outcome": "allow", "policies": ["base"], "bundle_digest": "cd" * 32},
        "receipt": list(call().receipt),
        "result": None,
        "attestation": genuine,
    }
    with pytest.raises(Tampered) as caught:
        verify_call_document(dumped(document), KNOWN)
    assert caught.value.code == "attestation.document_mismatch"
    honest = {**document, "call_id": call().call_id}
    assert verify_call_document(dumped(honest), KNOWN) == call()
    # true and 1 are equal in Python and different in evidence.
    receipt = [{"layer": "flag", "got": 1}]
    flagged = {**honest, "receipt": [{"layer": "flag", "got": True}]}
    flagged["attestation"] = attest(call(receipt=tuple(receipt)), [DAEMON]).to_dict()
    with pytest.raises(Tampered):
        verify_call_document(dumped(flagged), KNOWN)


@settings(max_examples=300)
@given(st.data())
def test_no_byte_of_a_document_with_attested_meaning_can_change(data: st.DataObject) -> None:
    """Flips one byte anywhere in the envelope of a real attestation."""
    raw = attest(call(), [DAEMON]).to_json()
    index = data.draw(st.integers(0, len(raw) - 1))
    flipped = raw[:index] + bytes([raw[index] ^ data.draw(st.integers(1, 255))]) + raw[index + 1 :]
    with pytest.raises(Tampered):
        verify_attestation(flipped, KNOWN)


@given(
    st.lists(st.tuples(st.sampled_from(["principal", "tool", "executor", "outcome"]), st.text(max_size=8)), max_size=4)
)
def test_two_different_executions_never_share_a_digest(changes: list[tuple[str, str]]) -> None:
    other = msgspec.structs.replace(call(), **dict(changes))
    assert (execution_sha256(other) == execution_sha256(call())) == (other == call())


@pytest.mark.promise("P-limits")
def test_a_flood_is_refused_before_it_is_parsed() -> None:
    assert refused_with(b"[" * 3_000_000) == "attestation.malformed"
    with pytest.raises(Tampered):
        verify_call_document(b" " * 20_000_000, KNOWN)
