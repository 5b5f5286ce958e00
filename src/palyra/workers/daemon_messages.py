"""What the daemon says to a worker, as messages of the wire. Nothing is decided here."""

from collections.abc import Iterable
from typing import Any

from palyra.errors import PalyraError, RemoteError
from palyra.wire.worker.v1 import worker_pb2 as wire
from palyra.workers.fleet_policy import WorkerFleetPolicy
from palyra.workers.lease import WorkerLease
from palyra.workers.lease_ask import LeaseAsk
from palyra.workers.record import WorkerRecord
from palyra.workers.service_limits import MAX_BATCH_BYTES, PROTOCOL_VERSION


def welcome(record: WorkerRecord, policy: WorkerFleetPolicy, void: Iterable[str], ca_bundle_pem: bytes) -> Any:
    return wire.DaemonCommand(
        welcome=wire.Welcome(
            protocol_version=PROTOCOL_VERSION,
            session=record.session,
            heartbeat_interval_ms=policy.heartbeat_interval_ms,
            heartbeat_timeout_ms=policy.heartbeat_timeout_ms,
            settle_grace_ms=policy.settle_grace_ms,
            max_leases=policy.max_leases_per_worker,
            max_batch_bytes=MAX_BATCH_BYTES,
            void_lease_ids=list(void),
            ca_bundle_pem=ca_bundle_pem,
        )
    )


def challenge(nonce: str, policy: WorkerFleetPolicy) -> Any:
    return wire.DaemonCommand(challenge=wire.Challenge(nonce=nonce, valid_ms=policy.nonce_life_ms))


def attestation_answer(refusal: PalyraError | None, next_within_ms: int) -> Any:
    code, message = ("", "") if refusal is None else (refusal.code, refusal.message)
    return wire.DaemonCommand(
        attestation_answer=wire.AttestationAnswer(code=code, message=message, next_within_ms=next_within_ms)
    )


def heartbeat_ack(sequence: int) -> Any:
    return wire.DaemonCommand(heartbeat_ack=wire.HeartbeatAck(sequence=sequence))


def offer(lease: WorkerLease, ask: LeaseAsk, now_ms: int) -> Any:
    return wire.DaemonCommand(
        lease=wire.LeaseOffer(
            lease_id=lease.lease_id,
            fence=lease.fence,
            run_id=lease.run_id,
            call_id=lease.call_id,
            principal=lease.principal,
            tool=lease.tool,
            arguments_json=ask.arguments_json,
            argument_digest=lease.argument_digest,
            tier=ask.tier,
            obligations_json=ask.obligations_json,
            scope=wire.WorkspaceScope(
                root=lease.scope.root, allowed_paths=lease.scope.allowed_paths, read_only=lease.scope.read_only
            ),
            inputs=[
                wire.Artifact(path=one.path, digest_sha256=one.digest_sha256, size=one.size, executable=one.executable)
                for one in lease.inputs
            ],
            nonce=lease.nonce,
            timeout_ms=max(1, lease.deadline_ms - now_ms),
            max_output_bytes=lease.max_output_bytes,
        )
    )


def cancel(lease: WorkerLease) -> Any:
    return wire.DaemonCommand(cancel=wire.LeaseCancel(lease_id=lease.lease_id, fence=lease.fence, reason=lease.reason))


def settlement_answer(lease_id: str, refusal: PalyraError | None) -> Any:
    code, message = ("", "") if refusal is None else (code_of(refusal), refusal.message)
    answer = wire.SettlementAnswer(lease_id=lease_id, code=code, message=message)
    return wire.DaemonCommand(settlement_answer=answer)


def certificate_news(ca_bundle_pem: bytes) -> Any:
    return wire.DaemonCommand(certificate_news=wire.CertificateNews(ca_bundle_pem=ca_bundle_pem, renew_now=True))


def goodbye(code: str, message: str) -> Any:
    return wire.DaemonCommand(goodbye=wire.Goodbye(code=code, message=message))


def code_of(error: PalyraError) -> str:
    return error.remote_code if isinstance(error, RemoteError) else error.code
