"""What a worker says it is, bound to one challenge of the daemon, and what the daemon demands of it.

Signed with the key of the device's certificate, so another device cannot say it; with the daemon's nonce, so an old
one cannot be said again. The digests are the worker's own measurements: they show an outdated or mixed-up worker, and
whoever owns the machine and the key can still lie. What is wanted and not shown is refused, each with its code.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

import msgspec

from palyra.errors import Denied
from palyra.fleet import limits
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.signed_statement import DeviceSigner, DeviceVerifier, MalformedStatement, SignedStatement
from palyra.fleet.domain.signed_statement import open_statement as _open
from palyra.fleet.domain.signed_statement import sign_statement as _sign
from palyra.fleet.limits import MAX_CLOCK_SKEW_MS
from palyra.signing.dsse import BadSignature

# The word of an egress proxy that a worker's traffic goes through it, under which policy, and until when.
#
# The proxy has an identity and a key of its own, so a worker cannot make this up.

BINDING_STATEMENT_TYPE: Final = "application/vnd.palyra.egress-binding.v1+json"


class EgressBindingMissing(Denied):
    code = "egress_binding.missing"
    hint = "start the worker with its egress proxy, or let the fleet's policy not require one"


class EgressUnknown(Denied):
    code = "egress_binding.unknown_egress"
    hint = "pair the worker's egress proxy with this daemon"


class EgressBindingForged(Denied):
    code = "egress_binding.signature"
    hint = "the binding was not signed by the proxy it names: find out who made it"


class EgressBindingForAnother(Denied):
    code = "egress_binding.wrong_worker"
    hint = "the binding names another worker or answers another challenge: a proxy makes a new one each time"


class EgressBindingStale(Denied):
    code = "egress_binding.stale"
    hint = "the proxy's binding is not valid now; compare the clocks of both machines"


class EgressPolicyUnknown(Denied):
    code = "egress_binding.policy"
    hint = "the proxy enforces another policy than the fleet requires: update it"


class EgressBinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["palyra.egress.binding.v1"] = "palyra.egress.binding.v1"
    egress_id: str
    worker_id: str
    policy_digest_sha256: str
    nonce: str
    issued_ms: int
    expires_ms: int


def sign_binding(binding: EgressBinding, signer: DeviceSigner) -> SignedStatement:
    return _sign(BINDING_STATEMENT_TYPE, binding, signer)


class BindingExpectation(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    nonce: str
    # The keys of the egress identities that are paired and not revoked, by device id.
    keys: Mapping[str, DeviceVerifier]
    policy_digests: frozenset[str] | None


def validate_binding(
    egress_id: str, signed: SignedStatement, expected: BindingExpectation, now_ms: int
) -> EgressBinding:
    """The binding, or the refusal that applies."""
    key = expected.keys.get(egress_id)
    if key is None:
        raise EgressUnknown(f"{egress_id[:64]!r} is not an egress proxy of this daemon", egress_id=egress_id[:64])
    try:
        binding = _open(BINDING_STATEMENT_TYPE, EgressBinding, signed, key)
    except (BadSignature, MalformedStatement) as error:
        raise EgressBindingForged(f"the egress binding does not verify: {error.message}") from error
    if binding.egress_id != egress_id:
        raise EgressBindingForged(f"{egress_id} signed a binding in the name of {binding.egress_id[:64]!r}")
    if (binding.worker_id, binding.nonce) != (expected.worker_id, expected.nonce):
        raise EgressBindingForAnother("the egress binding is for another worker or another challenge")
    if not binding.issued_ms - MAX_CLOCK_SKEW_MS <= now_ms < binding.expires_ms:
        raise EgressBindingStale("the egress binding is not valid now")
    if expected.policy_digests is not None and binding.policy_digest_sha256 not in expected.policy_digests:
        raise EgressPolicyUnknown(f"the proxy enforces the policy {binding.policy_digest_sha256[:64]!r}")
    return binding


STATEMENT_TYPE: Final = "application/vnd.palyra.worker-attestation.v1+json"
_Capability = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.MAX_CAPABILITY_CHARS)]
_Capabilities = Annotated[tuple[_Capability, ...], msgspec.Meta(max_length=limits.MAX_CAPABILITIES)]
_SHA256 = re.compile(r"[0-9a-f]{64}")


class AttestationForged(Denied):
    code = "worker_attestation.signature"
    hint = "it was not signed with the key of this worker's certificate"


class AttestationUnreadable(Denied):
    code = "worker_attestation.malformed"
    hint = "update the worker or the daemon: they do not speak the same version"


class AttestationForAnother(Denied):
    code = "worker_attestation.wrong_worker"
    hint = "a worker attests itself; a copied statement names the one it was copied from"


class StaleNonce(Denied):
    code = "worker_attestation.stale_nonce"
    hint = "each attestation answers the daemon's latest challenge, once"


class ChallengeExpired(Denied):
    """The right answer too late: no sign of malice."""

    code = "worker_attestation.challenge_expired"
    hint = "the worker answered too slowly; the daemon asks again"


class AttestationFromFuture(Denied):
    code = "worker_attestation.future"
    hint = "set the worker's clock"


class AttestationExpired(Denied):
    code = "worker_attestation.expired"
    hint = "attest anew, and compare the clocks of both machines"


class AttestationTooLong(Denied):
    code = "worker_attestation.too_long_lived"
    hint = f"an attestation is valid for at most {limits.MAX_ATTESTATION_LIFE_MS // 3_600_000} hours"


class ImageUnknown(Denied):
    code = "worker_attestation.image_digest"
    hint = "the worker's image is not among workers.image_digests"


class BuildUnknown(Denied):
    code = "worker_attestation.build_digest"
    hint = "the worker's installed files are not of a build among workers.build_digests"


class ArtifactUnknown(Denied):
    code = "worker_attestation.artifact_digest"
    hint = "the worker's package is not among workers.artifact_digests"


class CapabilityMissing(Denied):
    code = "worker_attestation.capability_missing"
    hint = "every worker must have the capabilities in workers.required_capabilities"


class ProtocolUnknown(Denied):
    code = "worker_attestation.sdk_protocol"
    hint = "update the worker or the daemon: they speak different lease protocols"


class AbiUnknown(Denied):
    code = "worker_attestation.wit_abi"
    hint = "update the worker or the daemon: they have different plugin interfaces"


class WorkerAttestation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An empty digest is one that the worker could not measure. ``egress_binding`` is what the proxy signed, in hex."""

    format: Literal["palyra.worker.attestation.v1"] = "palyra.worker.attestation.v1"
    worker_id: str
    image_digest_sha256: str = ""
    build_digest_sha256: str = ""
    artifact_digest_sha256: str = ""
    egress_proxy_attested: bool
    egress_id: str = ""
    egress_binding: str = ""
    egress_binding_signature: str = ""
    supported_capabilities: _Capabilities
    sdk_protocol_version: int
    wit_abi_version: str
    issued_ms: int
    expires_ms: int
    nonce: str

    def with_binding(self, egress_id: str, signed: SignedStatement) -> Self:
        return msgspec.structs.replace(
            self,
            egress_proxy_attested=True,
            egress_id=egress_id,
            egress_binding=signed.payload.hex(),
            egress_binding_signature=signed.signature.hex(),
        )


def sign_attestation(attestation: WorkerAttestation, signer: DeviceSigner) -> SignedStatement:
    return _sign(STATEMENT_TYPE, attestation, signer)


class WorkerAttestationExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker has to show now. ``nonce`` is empty when no challenge is open: then nothing passes."""

    worker_id: str
    key: DeviceVerifier
    nonce: str
    nonce_ms: int
    policy: WorkerFleetPolicy
    egress_keys: Mapping[str, DeviceVerifier]


class ValidAttestation(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger keeps of an attestation that passed."""

    image_digest_sha256: str
    build_digest_sha256: str
    artifact_digest_sha256: str
    egress_id: str
    capabilities: frozenset[str]
    key_id: str
    attested_ms: int
    expires_ms: int
    session: int = 0


def validate_attestation(
    signed: SignedStatement, expected: WorkerAttestationExpectation, now_ms: int
) -> ValidAttestation:
    """What was attested, or the refusal that applies. The signature comes first: nothing unsigned is believed."""
    try:
        said = _open(STATEMENT_TYPE, WorkerAttestation, signed, expected.key)
    except BadSignature as error:
        raise AttestationForged("the attestation is not signed by this worker's key") from error
    except MalformedStatement as error:
        raise AttestationUnreadable(error.message) from error
    if said.worker_id != expected.worker_id:
        raise AttestationForAnother(f"the attestation is that of {said.worker_id[:64]!r}")
    policy = expected.policy
    if not expected.nonce or said.nonce != expected.nonce:
        raise StaleNonce("the attestation does not answer an open challenge")
    if now_ms >= expected.nonce_ms + policy.nonce_life_ms:
        raise ChallengeExpired("the attestation answers a challenge that is not open any more")
    _require_times(said, now_ms)
    _require_digests(said, policy)
    binding = _require_egress(said, expected, now_ms)
    missing = policy.required_capabilities.difference(said.supported_capabilities)
    if missing:
        raise CapabilityMissing(f"the worker lacks {', '.join(sorted(missing))[:200]}", missing=sorted(missing))
    if said.sdk_protocol_version not in policy.sdk_protocol_versions:
        raise ProtocolUnknown(f"the worker speaks lease protocol {said.sdk_protocol_version}")
    if said.wit_abi_version not in policy.wit_abi_versions:
        raise AbiUnknown(f"the worker has the plugin interface {said.wit_abi_version[:80]!r}")
    return ValidAttestation(
        image_digest_sha256=said.image_digest_sha256,
        build_digest_sha256=said.build_digest_sha256,
        artifact_digest_sha256=said.artifact_digest_sha256,
        egress_id=binding.egress_id if binding else "",
        capabilities=frozenset(said.supported_capabilities),
        key_id=expected.key.key_id,
        attested_ms=now_ms,
        expires_ms=min(said.expires_ms, binding.expires_ms) if binding else said.expires_ms,
    )


def _require_times(said: WorkerAttestation, now_ms: int) -> None:
    if said.issued_ms > now_ms + limits.MAX_CLOCK_SKEW_MS:
        raise AttestationFromFuture(f"the attestation was issued {said.issued_ms - now_ms} ms from now")
    if now_ms >= said.expires_ms or said.expires_ms <= said.issued_ms:
        raise AttestationExpired("the attestation is not valid any more")
    if said.expires_ms - said.issued_ms > limits.MAX_ATTESTATION_LIFE_MS:
        raise AttestationTooLong("the attestation claims to be valid for too long")


def _require_digests(said: WorkerAttestation, policy: WorkerFleetPolicy) -> None:
    for digest, allowed, what, refusal in (
        (said.image_digest_sha256, policy.image_digests, "image", ImageUnknown),
        (said.build_digest_sha256, policy.build_digests, "build", BuildUnknown),
        (said.artifact_digest_sha256, policy.artifact_digests, "artifact", ArtifactUnknown),
    ):
        if digest and not _SHA256.fullmatch(digest):
            raise refusal(f"the worker's {what} digest is no SHA-256 in hex")
        if allowed is not None and digest not in allowed:
            raise refusal(f"the worker's {what} digest is {digest or 'missing'}", digest=digest)


def _require_egress(
    said: WorkerAttestation, expected: WorkerAttestationExpectation, now_ms: int
) -> EgressBinding | None:
    """The binding to the worker's proxy; None if it has none and needs none."""
    if not said.egress_proxy_attested or not said.egress_binding:
        if expected.policy.require_egress_binding:
            raise EgressBindingMissing("the worker shows no binding to an egress proxy")
        return None
    try:
        signed = SignedStatement(bytes.fromhex(said.egress_binding), bytes.fromhex(said.egress_binding_signature))
    except ValueError as error:
        raise AttestationUnreadable("the egress binding is not hex") from error
    wanted = BindingExpectation(
        worker_id=expected.worker_id,
        nonce=expected.nonce,
        keys=expected.egress_keys,
        policy_digests=expected.policy.egress_policy_digests,
    )
    return validate_binding(said.egress_id, signed, wanted, now_ms)
