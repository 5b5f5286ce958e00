from typing import Any

import pytest

from fakes.fleet_peers import EGRESS, EGRESS_POLICY, OTHER, WORKER, FleetPeers
from palyra.errors import Denied
from palyra.fleet.domain.attestation import EgressBinding, validate_binding
from palyra.fleet.domain.signed_statement import sign_statement
from palyra.fleet.limits import MAX_CLOCK_SKEW_MS
from palyra.signing.p256 import P256Signer

NOW, NONCE = 1_000_000, "5a" * 32


def binding(**changes: Any) -> EgressBinding:
    fields: dict[str, Any] = {
        "egress_id": EGRESS,
        "worker_id": WORKER,
        "policy_digest_sha256": EGRESS_POLICY,
        "nonce": NONCE,
        "issued_ms": NOW,
        "expires_ms": NOW + 1_000,
    }
    return EgressBinding(**{**fields, **changes})


def expected(peers: FleetPeers, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "worker_id": WORKER,
        "nonce": NONCE,
        "keys": {EGRESS: peers.egress_key.verifier()},
        "policy_digests": frozenset((EGRESS_POLICY,)),
    }
    return {**fields, **changes}


def test_the_proxys_word_is_taken(peers: FleetPeers) -> None:
    said = binding()
    assert validate_binding(EGRESS, sign_statement(said, peers.egress_key), **expected(peers), now_ms=NOW) == said


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"egress_id": OTHER}, "egress_binding.signature"),
        ({"worker_id": OTHER}, "egress_binding.wrong_worker"),
        ({"nonce": "00" * 32}, "egress_binding.wrong_worker"),
        ({"expires_ms": NOW}, "egress_binding.stale"),
        ({"issued_ms": NOW + MAX_CLOCK_SKEW_MS + 1}, "egress_binding.stale"),
        ({"policy_digest_sha256": "00" * 32}, "egress_binding.policy"),
    ],
)
def test_each_fault_has_its_code(peers: FleetPeers, changes: dict[str, Any], code: str) -> None:
    with pytest.raises(Denied) as raised:
        validate_binding(EGRESS, sign_statement(binding(**changes), peers.egress_key), **expected(peers), now_ms=NOW)
    assert raised.value.code == code


def test_a_worker_cannot_sign_for_its_proxy_nor_name_an_unknown_one(peers: FleetPeers) -> None:
    with pytest.raises(Denied) as raised:
        validate_binding(EGRESS, sign_statement(binding(), P256Signer.generate()), **expected(peers), now_ms=NOW)
    assert raised.value.code == "egress_binding.signature"
    with pytest.raises(Denied) as raised:
        validate_binding(EGRESS, sign_statement(binding(), peers.egress_key), **expected(peers, keys={}), now_ms=NOW)
    assert raised.value.code == "egress_binding.unknown_egress"


def test_without_pinned_policies_any_is_taken(peers: FleetPeers) -> None:
    said = sign_statement(binding(policy_digest_sha256="00" * 32), peers.egress_key)
    validate_binding(EGRESS, said, **expected(peers, policy_digests=None), now_ms=NOW)
