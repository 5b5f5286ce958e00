"""What the daemon says to a worker, as values. Nothing is decided here, and nothing of the wire is loaded for it."""

from collections.abc import Collection, Iterable
from typing import Any, NoReturn, Protocol

import msgspec

from palyra.errors import PalyraError, RemoteError
from palyra.fleet.domain.lease import WorkerLease
from palyra.fleet.domain.lease_request import LeaseRequest
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.signed_statement import DeviceVerifier
from palyra.fleet.domain.worker import WorkerRecord
from palyra.fleet.limits import MAX_BATCH_BYTES, PROTOCOL_VERSION
from palyra.identity.device import DeviceKind
from palyra.identity.records import IssuedCertificate, PeerIdentity


class Outgoing(msgspec.Struct, frozen=True):
    """One ``DaemonCommand``: which of its kinds, and the fields of that."""

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


def offer(lease: WorkerLease, ask: LeaseRequest, now_ms: int) -> Outgoing:
    return Outgoing(
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


def error_code(error: PalyraError) -> str:
    return error.remote_code if isinstance(error, RemoteError) else error.code


def _answer_fields(refusal: PalyraError | None) -> dict[str, str]:
    """An empty code accepts."""
    return {"code": "", "message": ""} if refusal is None else {"code": error_code(refusal), "message": refusal.message}


# What the fleet's service needs of the listener's gate, of identities and of metrics, declared by the consumer.


class FleetIdentities(Protocol):
    async def used(self, peer: PeerIdentity) -> None: ...

    async def renew(self, peer: PeerIdentity, csr_der: bytes, generation: int) -> IssuedCertificate: ...

    def ca_bundle_pem(self) -> bytes: ...


class Gate(Protocol):
    """The gate of the listener for devices: the checks on every peer, in their one order."""

    @property
    def identities(self) -> FleetIdentities: ...

    async def admit(self, context: Any, kinds: Collection[DeviceKind], claimed: str, method: str) -> PeerIdentity: ...

    async def admit_renewal(
        self, context: Any, kinds: Collection[DeviceKind], claimed: str, method: str
    ) -> PeerIdentity: ...

    async def fingerprint(self, context: Any, method: str) -> str: ...

    async def admit_message(
        self, context: Any, fingerprint: str, kinds: Collection[DeviceKind], claimed: str, method: str
    ) -> PeerIdentity: ...

    def check(self, fingerprint: str, kinds: Collection[DeviceKind], claimed: str) -> PeerIdentity: ...

    async def refuse(self, context: Any, refusal: PalyraError, method: str, fingerprint: str = "") -> NoReturn: ...

    async def note(self, refusal: PalyraError, method: str, fingerprint: str = "") -> None: ...


class DeviceKeys(Protocol):
    """The public keys of devices."""

    def of_certificate(self, pem: bytes) -> "DeviceKeyOf": ...

    def of_device(self, device_id: str, kind: DeviceKind) -> DeviceVerifier | None:
        """The key of a device of this kind that is paired and not revoked."""


class DeviceKeyOf(DeviceVerifier, Protocol):
    def public_der(self) -> bytes:
        """The SubjectPublicKeyInfo: who holds it can check what the device signed."""


class FleetMetrics(Protocol):
    def lease_ended(self, state: str, seconds: float) -> None: ...

    def worker_refused(self, code: str) -> None: ...


class CommandStream(Protocol):
    """The way down to one connected worker. None of it waits."""

    @property
    def sent(self) -> int:
        """How often something was sent."""

    def send(self, told: Outgoing) -> None: ...

    def send_along(self, told: Outgoing) -> None:
        """With whatever is sent next: for what nobody waits for. A message costs more than what is in it."""

    def end(self, code: str, message: str) -> None:
        """Says goodbye and ends the stream."""
