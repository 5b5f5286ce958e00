"""The word of an egress proxy that a worker's traffic goes through it, under which policy, and until when.

The proxy has an identity and a key of its own, so a worker cannot make this up.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from palyra.errors import Denied
from palyra.signing.dsse import BadSignature
from palyra.workers.limits import MAX_CLOCK_SKEW_MS
from palyra.workers.signed_statement import DeviceSigner, DeviceVerifier, MalformedStatement, SignedStatement
from palyra.workers.signed_statement import open_statement as _open
from palyra.workers.signed_statement import sign_statement as _sign

STATEMENT_TYPE: Final = "application/vnd.palyra.egress-binding.v1+json"


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
    return _sign(STATEMENT_TYPE, binding, signer)


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
        binding = _open(STATEMENT_TYPE, EgressBinding, signed, key)
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
