"""The daemon's messages to a worker, and the interfaces of the fleet's services. Loads neither gRPC nor protobuf."""

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from palyra.errors import PalyraError, RemoteError
from palyra.fleet.domain.lease import LeaseRequest, WorkerLease, call_fields
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.worker import WorkerRecord
from palyra.fleet.limits import MAX_BATCH_BYTES, PROTOCOL_VERSION
from palyra.identity.device import DeviceKind
from palyra.signing.p256 import P256Verifier


class Outgoing(msgspec.Struct, frozen=True):
    """One ``DaemonCommand``: its kind, and the fields of that kind."""

    kind: str
    fields: dict[str, Any]


def welcome(record: WorkerRecord, policy: WorkerFleetPolicy, void: Iterable[str], ca_bundle_pem: bytes) -> Outgoing:
    return Outgoing(
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


def challenge(nonce: str, policy: WorkerFleetPolicy) -> Outgoing:
    return Outgoing("challenge", {"nonce": nonce, "valid_ms": policy.nonce_life_ms})


def answer_attestation(refusal: PalyraError | None, next_within_ms: int) -> Outgoing:
    return Outgoing("attestation_answer", {**_answer_fields(refusal), "next_within_ms": next_within_ms})


def acknowledge_heartbeat(sequence: int) -> Outgoing:
    return Outgoing("heartbeat_ack", {"sequence": sequence})


def offer(lease: WorkerLease, request: LeaseRequest, now_ms: int) -> Outgoing:
    return Outgoing(
        "lease",
        {
            **call_fields(lease),
            "lease_id": lease.lease_id,
            "fence": lease.fence,
            "arguments_json": request.arguments_json,
            "tier": request.tier,
            "obligations_json": request.obligations_json,
            "scope": msgspec.structs.asdict(lease.scope),
            "inputs": [msgspec.structs.asdict(one) for one in lease.inputs],
            "nonce": lease.nonce,
            "timeout_ms": max(1, lease.deadline_ms - now_ms),
            "max_output_bytes": lease.max_output_bytes,
        },
    )


def cancel(lease: WorkerLease) -> Outgoing:
    return Outgoing("cancel", {"lease_id": lease.lease_id, "fence": lease.fence, "reason": lease.reason})


def answer_settlement(lease_id: str, refusal: PalyraError | None) -> Outgoing:
    return Outgoing("settlement_answer", {"lease_id": lease_id, **_answer_fields(refusal)})


def ask_cleanup(lease: WorkerLease) -> Outgoing:
    return Outgoing("owed", {"lease_id": lease.lease_id, "fence": lease.fence, "nonce": lease.nonce})


def announce_certificates(ca_bundle_pem: bytes) -> Outgoing:
    return Outgoing("certificate_news", {"ca_bundle_pem": ca_bundle_pem, "renew_now": True})


def say_goodbye(code: str, message: str) -> Outgoing:
    return Outgoing("goodbye", {"code": code, "message": message})


def _answer_fields(refusal: PalyraError | None) -> dict[str, str]:
    """Return code and message. An empty code accepts."""
    if refusal is None:
        return {"code": "", "message": ""}
    code = refusal.remote_code if isinstance(refusal, RemoteError) else refusal.code
    return {"code": code, "message": refusal.message}


class DeviceKeys(Protocol):
    def of_certificate(self, pem: bytes) -> P256Verifier: ...

    def of_device(self, device_id: str, kind: DeviceKind) -> P256Verifier | None:
        """Return the key of a device of this kind that is paired and not revoked."""


class FleetMetrics(Protocol):
    def lease_ended(self, state: str, seconds: float) -> None: ...

    def worker_refused(self, code: str) -> None: ...


class CommandStream(Protocol):
    """The stream to one connected worker. No method waits."""

    @property
    def sent(self) -> int:
        """The number of calls of ``send``."""

    def send(self, message: Outgoing) -> None: ...

    def send_along(self, message: Outgoing) -> None:
        """Send with the next message, as nothing waits for it: each message costs more than its content."""

    def end(self, code: str, message: str) -> None: ...
