"""The worker's attestation beside the daemon's: verified by the key that the daemon names, or refused."""

from typing import Any

import msgspec
import pytest

from palyra.errors import PalyraError
from palyra.pipeline.attest import build_worker_receipt, verify_worker_attestation
from palyra.signing.p256 import P256Signer, P256Verifier
from palyra.signing.tool_attestation import ToolAttestation, attest_with_digest


class Key:
    def __init__(self) -> None:
        self.signer = P256Signer.generate()
        self.key_id = self.signer.verifier().key_id

    def sign(self, message: bytes) -> bytes:
        return self.signer.sign(message)

    def public_key(self) -> bytes:
        return self.signer.verifier().public_der()


def about(**changes: Any) -> ToolAttestation:
    fields: dict[str, Any] = {
        "call_id": "01CA",
        "run_id": "01RN",
        "principal": "agent:a",
        "tool": "echo",
        "argument_digest": "ab",
        "decision": "leased",
        "policies": (),
        "bundle_digest": "",
        "executor": "worker/01W",
        "receipt": (),
        "outcome": "succeeded",
        "output_digest": "ef",
        "started_ms": 0,
        "ended_ms": 1,
    }
    return ToolAttestation(**{**fields, **changes})


class Harness:
    def __init__(self) -> None:
        self.key = Key()
        self.said, self.digest = attest_with_digest(about(), (self.key,))

    def ours(self, *, said: Any = None, **changes: Any) -> ToolAttestation:
        entry = build_worker_receipt(
            worker_id="01W",
            lease_id="01L",
            fence=1,
            key_id=self.key.key_id,
            key_der=self.key.public_key(),
            execution_sha256=self.digest,
            output_digest="ef",
        )
        entries = ({**entry, **(said or {})}, {"layer": "code"})
        return about(**{"executor": "worker", "decision": "allow", "receipt": entries, **changes})

    def verify(self, ours: ToolAttestation, envelope: Any = "said") -> ToolAttestation | None:
        shown = self.said.to_dict() if envelope == "said" else envelope
        document = {"attestation": {}, **({} if shown is None else {"worker_attestation": shown})}
        return verify_worker_attestation(msgspec.json.encode(document), ours, P256Verifier.from_der)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_what_the_worker_signed_is_verified_by_the_key_that_the_daemon_names(harness: Harness) -> None:
    assert harness.verify(harness.ours()) == about()


def test_a_call_that_ran_here_has_none(harness: Harness) -> None:
    assert harness.verify(about(executor="builtin"), None) is None
    # A lost lease left nothing to sign.
    assert harness.verify(about(executor="worker", outcome="failed"), None) is None


def test_the_daemon_may_find_fault_with_what_succeeded(harness: Harness) -> None:
    assert harness.verify(harness.ours(outcome="failed")) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"executor": "builtin"},
        {"receipt": ()},
        {"call_id": "01OTHER"},
        {"tool": "sleep"},
        {"argument_digest": "00"},
    ],
)
def test_another_call_s_word_is_refused(harness: Harness, changes: dict[str, Any]) -> None:
    with pytest.raises(PalyraError) as error:
        harness.verify(harness.ours(**changes))
    assert error.value.code == "attestation.document_mismatch"


@pytest.mark.parametrize(
    ("receipt", "code"),
    [
        ({"execution_sha256": "00"}, "attestation.document_mismatch"),
        ({"output_digest": "00"}, "attestation.document_mismatch"),
        ({"key_id": "p256:00"}, "attestation.document_mismatch"),
        ({"public_key": "!"}, "attestation.malformed"),
        ({"public_key": "AAAA"}, "attestation.malformed"),
    ],
)
def test_a_receipt_that_names_something_else_is_refused(harness: Harness, receipt: Any, code: str) -> None:
    with pytest.raises(PalyraError) as error:
        harness.verify(harness.ours(said=receipt))
    assert error.value.code == code


def test_a_missing_or_forged_envelope_is_refused(harness: Harness) -> None:
    with pytest.raises(PalyraError) as missing:
        harness.verify(harness.ours(), None)
    assert missing.value.code == "attestation.document_mismatch"
    forged, _ = attest_with_digest(about(), (Key(),))
    with pytest.raises(PalyraError) as unknown:
        harness.verify(harness.ours(), forged.to_dict())
    assert unknown.value.code == "attestation.unknown_key"
