"""What the daemon says to a worker, as values. Nothing is decided here, and nothing of the wire is loaded for it."""

from collections.abc import Iterable
from typing import Any

import msgspec

from palyra.errors import PalyraError, RemoteError
from palyra.workers.fleet_policy import WorkerFleetPolicy
from palyra.workers.lease import WorkerLease
from palyra.workers.lease_ask import LeaseAsk
from palyra.workers.record import WorkerRecord
from palyra.workers.service_limits import MAX_BATCH_BYTES, PROTOCOL_VERSION


class Told(msgspec.Struct, frozen=True):
    """One ``DaemonCommand``: which of its kinds, and the fields of that."""

    kind: str
    fields: dict[str, Any]


def welcome(record: WorkerRecord, policy: WorkerFleetPolicy, void: Iterable[str], ca_bundle_pem: bytes) -> Told:
    return Told(
        "welcome",
        {
            "protocol_version": PROTOCOL_VERSION,
            "session": record.session,
            "heartbeat_interval_ms": policy.heartbeat_interval_ms,
            "heartbeat_timeout_ms": policy.heartbeat_timeout_ms,
            "settle_grace_ms": policy.settle_grace_ms,
            "max_leases": policy.max_leases_per_worker,
            "max_batch_bytes": MAX_BATCH_BYTES,
            "void_lease_ids": list(void),
            "ca_bundle_pem": ca_bundle_pem,
        },
    )


def challenge(nonce: str, policy: WorkerFleetPolicy) -> Told:
    return Told("challenge", {"nonce": nonce, "valid_ms": policy.nonce_life_ms})


def attestation_answer(refusal: PalyraError | None, next_within_ms: int) -> Told:
    return Told("attestation_answer", {**_answer(refusal), "next_within_ms": next_within_ms})


def heartbeat_ack(sequence: int) -> Told:
    return Told("heartbeat_ack", {"sequence": sequence})


def offer(lease: WorkerLease, ask: LeaseAsk, now_ms: int) -> Told:
    return Told(
        "lease",
        {
            "lease_id": lease.lease_id,
            "fence": lease.fence,
            "run_id": lease.run_id,
            "call_id": lease.call_id,
            "principal": lease.principal,
            "tool": lease.tool,
            "arguments_json": ask.arguments_json,
            "argument_digest": lease.argument_digest,
            "tier": ask.tier,
            "obligations_json": ask.obligations_json,
            "scope": msgspec.structs.asdict(lease.scope),
            "inputs": [msgspec.structs.asdict(one) for one in lease.inputs],
            "nonce": lease.nonce,
            "timeout_ms": max(1, lease.deadline_ms - now_ms),
            "max_output_bytes": lease.max_output_bytes,
        },
    )


def cancel(lease: WorkerLease) -> Told:
    return Told("cancel", {"lease_id": lease.lease_id, "fence": lease.fence, "reason": lease.reason})


def settlement_answer(lease_id: str, refusal: PalyraError | None) -> Told:
    return Told("settlement_answer", {"lease_id": lease_id, **_answer(refusal)})


def owed(lease: WorkerLease) -> Told:
    return Told("owed", {"lease_id": lease.lease_id, "fence": lease.fence, "nonce": lease.nonce})


def certificate_news(ca_bundle_pem: bytes) -> Told:
    return Told("certificate_news", {"ca_bundle_pem": ca_bundle_pem, "renew_now": True})


def goodbye(code: str, message: str) -> Told:
    return Told("goodbye", {"code": code, "message": message})


def code_of(error: PalyraError) -> str:
    return error.remote_code if isinstance(error, RemoteError) else error.code


def _answer(refusal: PalyraError | None) -> dict[str, str]:
    """An empty code accepts."""
    return {"code": "", "message": ""} if refusal is None else {"code": code_of(refusal), "message": refusal.message}
