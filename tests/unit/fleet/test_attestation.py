from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import EGRESS, OTHER, POLICY, WORKER, FleetPeers
from palyra.errors import Denied
from palyra.fleet.domain.attestation import (
    WorkerAttestation,
    WorkerAttestationExpectation,
    validate_attestation,
)
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.signed_statement import SignedStatement, sign_statement
from palyra.fleet.domain.worker import WorkerLifecycleState, WorkerRecord
from palyra.fleet.limits import MAX_ATTESTATION_LIFE_MS, MAX_CLOCK_SKEW_MS

NOW = 1_790_000_000_000
NONCE = "5a" * 32
RECORD = WorkerRecord(
    worker_id=WORKER,
    state=WorkerLifecycleState.REGISTERED,
    name="",
    daemon="",
    boot_id="",
    slots=1,
    registered_ms=0,
    since_ms=0,
    nonce=NONCE,
)


def expectation(peers: FleetPeers, **changes: Any) -> WorkerAttestationExpectation:
    fields: dict[str, Any] = {
        "worker_id": WORKER,
        "key": peers.key(WORKER).verifier(),
        "nonce": NONCE,
        "nonce_ms": NOW,
        "policy": POLICY,
        "egress_keys": {EGRESS: peers.egress_key.verifier()},
    }
    return WorkerAttestationExpectation(**{**fields, **changes})


def signed(peers: FleetPeers, **changes: Any) -> SignedStatement:
    return sign_statement(peers.attestation(RECORD, NOW, **changes), peers.key(WORKER))


def refused(code: str, statement: SignedStatement, expected: WorkerAttestationExpectation, now_ms: int = NOW) -> None:
    with pytest.raises(Denied) as raised:
        validate_attestation(statement, expected, now_ms)
    assert raised.value.code == code


def test_an_honest_worker_passes_and_what_it_showed_is_kept(peers: FleetPeers) -> None:
    valid = validate_attestation(signed(peers), expectation(peers), NOW)
    assert valid.egress_id == EGRESS and valid.capabilities == {"tier.b", "tier.c"}
    assert (valid.attested_ms, valid.expires_ms, valid.key_id) == (
        NOW, NOW + 3_600_000, peers.key(WORKER).verifier().key_id,
    )  # fmt: skip


@pytest.mark.promise("P-worker-attested")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"worker_id": OTHER}, "worker_attestation.wrong_worker"),
        ({"nonce": "00" * 32}, "worker_attestation.stale_nonce"),
        ({"nonce": ""}, "worker_attestation.stale_nonce"),
        ({"issued_ms": NOW + MAX_CLOCK_SKEW_MS + 1}, "worker_attestation.future"),
        ({"expires_ms": NOW}, "worker_attestation.expired"),
        ({"issued_ms": NOW, "expires_ms": NOW - 1}, "worker_attestation.expired"),
        ({"expires_ms": NOW + MAX_ATTESTATION_LIFE_MS + 1}, "worker_attestation.too_long_lived"),
        ({"image_digest_sha256": "00" * 32}, "worker_attestation.image_digest"),
        ({"image_digest_sha256": ""}, "worker_attestation.image_digest"),
        ({"build_digest_sha256": "00" * 32}, "worker_attestation.build_digest"),
        ({"build_digest_sha256": ""}, "worker_attestation.build_digest"),
        ({"artifact_digest_sha256": "00" * 32}, "worker_attestation.artifact_digest"),
        ({"artifact_digest_sha256": "C3" * 32}, "worker_attestation.artifact_digest"),
        ({"egress_proxy_attested": False}, "egress_binding.missing"),
        ({"egress_binding": ""}, "egress_binding.missing"),
        ({"egress_binding": "zz"}, "worker_attestation.malformed"),
        ({"egress_id": OTHER}, "egress_binding.unknown_egress"),
        ({"egress_binding_signature": "00"}, "egress_binding.signature"),
        ({"supported_capabilities": ("tier.b",)}, "worker_attestation.capability_missing"),
        ({"sdk_protocol_version": 2}, "worker_attestation.sdk_protocol"),
        ({"wit_abi_version": "palyra:plugins@9.0.0"}, "worker_attestation.wit_abi"),
        ({"supported_capabilities": tuple(f"c{n}" for n in range(200))}, "worker_attestation.malformed"),
    ],
)
def test_each_fault_has_its_code(peers: FleetPeers, changes: dict[str, Any], code: str) -> None:
    refused(code, signed(peers, **changes), expectation(peers))


def test_another_devices_key_and_changed_bytes(peers: FleetPeers) -> None:
    honest = signed(peers)
    stolen = sign_statement(peers.attestation(RECORD, NOW), peers.key(OTHER))
    refused("worker_attestation.signature", stolen, expectation(peers))
    bent = SignedStatement(honest.payload.replace(b"tier.b", b"tier.a"), honest.signature)
    refused("worker_attestation.signature", bent, expectation(peers))


def test_without_an_open_challenge_nothing_passes(peers: FleetPeers) -> None:
    refused("worker_attestation.stale_nonce", signed(peers, nonce=""), expectation(peers, nonce=""))
    late = NOW + POLICY.nonce_life_ms
    refused("worker_attestation.challenge_expired", signed(peers), expectation(peers), late)
    validate_attestation(signed(peers), expectation(peers), late - 1)


def test_an_empty_set_of_digests_refuses_everyone_and_none_pins_nothing(peers: FleetPeers) -> None:
    nobody = msgspec.structs.replace(POLICY, image_digests=frozenset())
    refused("worker_attestation.image_digest", signed(peers), expectation(peers, policy=nobody))
    anybody = WorkerFleetPolicy()
    validate_attestation(signed(peers, image_digest_sha256=""), expectation(peers, policy=anybody), NOW)


def test_a_worker_without_a_proxy_where_none_is_required(peers: FleetPeers) -> None:
    relaxed = expectation(peers, policy=msgspec.structs.replace(POLICY, require_egress_binding=False))
    bare = signed(peers, egress_proxy_attested=False, egress_binding="")
    assert validate_attestation(bare, relaxed, NOW).egress_id == ""
    # A binding that is shown is checked all the same.
    refused("egress_binding.signature", signed(peers, egress_binding_signature="00"), relaxed)


def test_every_field_of_the_design_is_signed() -> None:
    assert {
        "worker_id",
        "image_digest_sha256",
        "build_digest_sha256",
        "artifact_digest_sha256",
        "egress_proxy_attested",
        "supported_capabilities",
        "sdk_protocol_version",
        "wit_abi_version",
        "issued_ms",
        "expires_ms",
        "nonce",
    } <= set(WorkerAttestation.__struct_fields__)
