"""The attestation of this worker, made anew for each challenge from what was measured once."""

import msgspec

from palyra.workers.agent.limits import ATTESTATION_LIFE_MS
from palyra.workers.attestation import WorkerAttestation
from palyra.workers.fleet_policy import SDK_PROTOCOL_VERSION, WIT_ABI_VERSION
from palyra.workers.limits import MAX_CAPABILITIES
from palyra.workers.signed_statement import SignedStatement


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """``boot_id`` is one life of this process."""

    boot_id: str
    platform: str
    software_version: str
    slots: int
    capabilities: tuple[str, ...]
    image_digest_sha256: str = ""
    build_digest_sha256: str = ""
    artifact_digest_sha256: str = ""


def attestation_for(
    facts: WorkerFacts,
    worker_id: str,
    nonce: str,
    now_ms: int,
    egress: tuple[str, SignedStatement] | None,
) -> WorkerAttestation:
    """Without an egress binding it says so: whether that is enough is the fleet's policy."""
    said = WorkerAttestation(
        worker_id=worker_id,
        image_digest_sha256=facts.image_digest_sha256,
        build_digest_sha256=facts.build_digest_sha256,
        artifact_digest_sha256=facts.artifact_digest_sha256,
        egress_proxy_attested=False,
        supported_capabilities=tuple(sorted(facts.capabilities))[:MAX_CAPABILITIES],
        sdk_protocol_version=SDK_PROTOCOL_VERSION,
        wit_abi_version=WIT_ABI_VERSION,
        issued_ms=now_ms,
        expires_ms=now_ms + ATTESTATION_LIFE_MS,
        nonce=nonce,
    )
    return said if egress is None else said.with_binding(*egress)
