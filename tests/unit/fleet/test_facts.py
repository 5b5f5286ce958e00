from palyra.fleet.agent.facts import WorkerFacts, make_attestation
from palyra.fleet.domain.attestation import WorkerAttestationExpectation, validate_attestation
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.signed_statement import SignedStatement, sign_statement
from palyra.fleet.limits import ATTESTATION_LIFE_MS, MAX_ATTESTATION_LIFE_MS
from palyra.signing.p256 import P256Signer

FACTS = WorkerFacts(
    boot_id="b",
    platform="linux",
    software_version="1",
    slots=2,
    capabilities=("tier.c", "tier.b"),
    build_digest_sha256="b2" * 32,
)


def test_what_is_made_here_passes_there() -> None:
    key = P256Signer.generate()
    said = make_attestation(FACTS, "W1", "ab", 1_000, None)
    assert not said.egress_proxy_attested and said.supported_capabilities == ("tier.b", "tier.c")
    expected = WorkerAttestationExpectation(
        worker_id="W1",
        key=key.verifier(),
        nonce="ab",
        nonce_ms=900,
        policy=WorkerFleetPolicy(require_egress_binding=False, build_digests=frozenset(("b2" * 32,))),
        egress_keys={},
    )
    assert validate_attestation(sign_statement(said, key), expected, 2_000).capabilities == {"tier.b", "tier.c"}
    assert ATTESTATION_LIFE_MS <= MAX_ATTESTATION_LIFE_MS


def test_a_binding_goes_into_it() -> None:
    said = make_attestation(FACTS, "W1", "ab", 1_000, ("E1", SignedStatement(b"p", b"s")))
    assert said.egress_proxy_attested and (said.egress_id, said.egress_binding) == ("E1", b"p".hex())
