"""A worker's attestation of itself for one challenge of the daemon, and the daemon's checks of it.

The key of the device's certificate signs it, and it repeats the daemon's nonce: no other device can make it, and an old
one does not pass again. The digests are the worker's own measurements. They show an outdated or mixed-up worker; the
owner of the machine and its key can still lie.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

import msgspec

from palyra.errors import Denied
from palyra.fleet import limits
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.signed_statement import MalformedStatement, SignedStatement, Statement, open_statement
from palyra.fleet.limits import MAX_CLOCK_SKEW_MS
from palyra.signing.dsse import BadSignature, Verifier


class EgressBindingMissing(Denied):
    code = "egress_binding.missing"
    hint = "start the worker with its egress proxy, or let the fleet's policy not require one"


class EgressUnknown(Denied):
    code = "egress_binding.unknown_egress"
    hint = "pair the worker's egress proxy with this daemon"


class EgressBindingForged(Denied):
    code = "egress_binding.signature"
    hint = "the binding was not signed by the proxy it names: find out where it came from"


class EgressBindingForAnother(Denied):
    code = "egress_binding.wrong_worker"
    hint = "the binding names another worker or answers another challenge: a proxy makes a new one each time"


class EgressBindingStale(Denied):
    code = "egress_binding.stale"
    hint = "the proxy's binding is not valid now; compare the clocks of both machines"


class EgressPolicyUnknown(Denied):
    code = "egress_binding.policy"
    hint = "the proxy enforces another policy than the fleet requires: update it"


class EgressBinding(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proxy's statement that a worker's traffic goes through it. The proxy signs with a key of its own."""

    statement_type = "application/vnd.palyra.egress-binding.v1+json"
    format: Literal["palyra.egress.binding.v1"] = "palyra.egress.binding.v1"
    egress_id: str
    worker_id: str
    policy_digest_sha256: str
    nonce: str
    issued_ms: int
    expires_ms: int


def validate_binding(
    egress_id: str,
    signed: SignedStatement,
    *,
    worker_id: str,
    nonce: str,
    keys: Mapping[str, Verifier],
    policy_digests: frozenset[str] | None,
    now_ms: int,
) -> EgressBinding:
    """Return the binding, or raise the refusal. ``keys`` are of the proxies that are paired and not revoked."""
    key = keys.get(egress_id)
    if key is None:
        raise EgressUnknown(f"{egress_id[:64]!r} is not an egress proxy of this daemon", egress_id=egress_id[:64])
    try:
        binding = open_statement(EgressBinding, signed, key)
    except (BadSignature, MalformedStatement) as error:
        raise EgressBindingForged(f"the egress binding does not verify: {error.message}") from error
    if binding.egress_id != egress_id:
        raise EgressBindingForged(f"{egress_id} signed a binding in the name of {binding.egress_id[:64]!r}")
    if (binding.worker_id, binding.nonce) != (worker_id, nonce):
        raise EgressBindingForAnother("the egress binding is for another worker or another challenge")
    if not binding.issued_ms - MAX_CLOCK_SKEW_MS <= now_ms < binding.expires_ms:
        raise EgressBindingStale("the egress binding is not valid now")
    if policy_digests is not None and binding.policy_digest_sha256 not in policy_digests:
        raise EgressPolicyUnknown(f"the proxy enforces the policy {binding.policy_digest_sha256[:64]!r}")
    return binding


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
    hint = "a worker attests itself; this statement names another worker"


class StaleNonce(Denied):
    code = "worker_attestation.stale_nonce"
    hint = "each attestation answers the daemon's latest challenge, once"


class ChallengeExpired(Denied):
    """A late answer, which an honest worker may send."""

    code = "worker_attestation.challenge_expired"
    hint = "the worker answered too slowly; the daemon asks again"


class AttestationFromFuture(Denied):
    code = "worker_attestation.future"
    hint = "set the worker's clock"


class AttestationExpired(Denied):
    code = "worker_attestation.expired"
    hint = "attest again, and compare the clocks of both machines"


class AttestationTooLong(Denied):
    code = "worker_attestation.too_long_lived"
    hint = f"an attestation is valid for at most {limits.MAX_ATTESTATION_LIFE_MS // 3_600_000} hours"


class ImageUnknown(Denied):
    code = "worker_attestation.image_digest"
    hint = "the worker's image is not among workers.image_digests"


class BuildUnknown(Denied):
    code = "worker_attestation.build_digest"
    hint = (
        "install the daemon's version of Palyra on the worker, or list in workers.build_digests what"
        " `palyra-workerd measure` prints there"
    )


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


class WorkerAttestation(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A digest that the worker could not measure is empty. ``egress_binding`` is the proxy's signed payload in hex."""

    statement_type = "application/vnd.palyra.worker-attestation.v1+json"
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


class WorkerAttestationExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements for this worker now. An empty ``nonce`` means that no challenge is open: then nothing passes."""

    worker_id: str
    key: Verifier
    nonce: str
    nonce_ms: int
    policy: WorkerFleetPolicy
    egress_keys: Mapping[str, Verifier]


class ValidAttestation(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a valid attestation that the ledger keeps."""

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
    """Return the valid attestation, or raise the refusal. The signature is checked first."""
    try:
        attested = open_statement(WorkerAttestation, signed, expected.key)
    except BadSignature as error:
        raise AttestationForged("the attestation is not signed by this worker's key") from error
    except MalformedStatement as error:
        raise AttestationUnreadable(error.message) from error
    if attested.worker_id != expected.worker_id:
        raise AttestationForAnother(f"the attestation is that of {attested.worker_id[:64]!r}")
    policy = expected.policy
    if not expected.nonce or attested.nonce != expected.nonce:
        raise StaleNonce("the attestation does not answer an open challenge")
    if now_ms >= expected.nonce_ms + policy.nonce_life_ms:
        raise ChallengeExpired("the attestation answers a challenge that is not open any more")
    _require_times(attested, now_ms)
    _require_digests(attested, policy)
    binding = _require_egress(attested, expected, now_ms)
    missing = policy.required_capabilities.difference(attested.supported_capabilities)
    if missing:
        raise CapabilityMissing(f"the worker lacks {', '.join(sorted(missing))[:200]}", missing=sorted(missing))
    if attested.sdk_protocol_version not in policy.sdk_protocol_versions:
        raise ProtocolUnknown(f"the worker speaks lease protocol {attested.sdk_protocol_version}")
    if attested.wit_abi_version not in policy.wit_abi_versions:
        raise AbiUnknown(f"the worker has the plugin interface {attested.wit_abi_version[:80]!r}")
    return ValidAttestation(
        image_digest_sha256=attested.image_digest_sha256,
        build_digest_sha256=attested.build_digest_sha256,
        artifact_digest_sha256=attested.artifact_digest_sha256,
        egress_id=binding.egress_id if binding else "",
        capabilities=frozenset(attested.supported_capabilities),
        key_id=expected.key.key_id,
        attested_ms=now_ms,
        expires_ms=min(attested.expires_ms, binding.expires_ms) if binding else attested.expires_ms,
    )


def _require_times(attested: WorkerAttestation, now_ms: int) -> None:
    if attested.issued_ms > now_ms + limits.MAX_CLOCK_SKEW_MS:
        raise AttestationFromFuture(f"the attestation was issued {attested.issued_ms - now_ms} ms from now")
    if now_ms >= attested.expires_ms or attested.expires_ms <= attested.issued_ms:
        raise AttestationExpired("the attestation is not valid any more")
    if attested.expires_ms - attested.issued_ms > limits.MAX_ATTESTATION_LIFE_MS:
        raise AttestationTooLong("the attestation claims to be valid for too long")


def _require_digests(attested: WorkerAttestation, policy: WorkerFleetPolicy) -> None:
    for digest, allowed, what, refusal in (
        (attested.image_digest_sha256, policy.image_digests, "image", ImageUnknown),
        (attested.build_digest_sha256, policy.build_digests, "build", BuildUnknown),
        (attested.artifact_digest_sha256, policy.artifact_digests, "artifact", ArtifactUnknown),
    ):
        if digest and not _SHA256.fullmatch(digest):
            raise refusal(f"the worker's {what} digest is not a SHA-256 in hex")
        if allowed is not None and digest not in allowed:
            raise refusal(f"the worker's {what} digest is {digest or 'missing'}", digest=digest)


def _require_egress(
    attested: WorkerAttestation, expected: WorkerAttestationExpectation, now_ms: int
) -> EgressBinding | None:
    """Return the binding to the worker's proxy. Return None if the worker has no binding and needs none."""
    if not attested.egress_proxy_attested or not attested.egress_binding:
        if expected.policy.require_egress_binding:
            raise EgressBindingMissing("the worker shows no binding to an egress proxy")
        return None
    try:
        signed = SignedStatement(
            bytes.fromhex(attested.egress_binding), bytes.fromhex(attested.egress_binding_signature)
        )
    except ValueError as error:
        raise AttestationUnreadable("the egress binding is not hex") from error
    return validate_binding(
        attested.egress_id,
        signed,
        worker_id=expected.worker_id,
        nonce=expected.nonce,
        keys=expected.egress_keys,
        policy_digests=expected.policy.egress_policy_digests,
        now_ms=now_ms,
    )
