"""Messages of the wire as values, and back. Nothing is decided here."""

from typing import Any

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import PalyraError
from palyra.tools.attestation import attest_with_digest
from palyra.wire.worker.v1 import worker_pb2 as wire
from palyra.workers.agent.lease_note import LeaseNote, execution_of, settlement_of
from palyra.workers.agent.link_messages import (
    Acknowledged,
    Answered,
    AttestationAnswered,
    AuthoritiesChanged,
    Cancelled,
    Challenged,
    Dismissed,
    Heard,
    Offered,
    Owed,
    Unreadable,
    Welcomed,
)
from palyra.workers.agent.offer import LeaseOffer, read_arguments, read_obligations
from palyra.workers.agent.ports import DeviceKey
from palyra.workers.disclaimer import LeaseDisclaimer, sign_disclaimer
from palyra.workers.limits import MAX_REASON_CHARS
from palyra.workers.settlement import sign_settlement
from palyra.workers.signed_statement import SignedStatement
from palyra.workers.workspace_scope import ArtifactRef, WorkerWorkspaceScope


def heard(command: Any) -> Heard | None:
    """None for what this version does not know."""
    match command.WhichOneof("command"):
        case "welcome":
            return _welcomed(command.welcome)
        case "challenge":
            return Challenged(command.challenge.nonce)
        case "attestation_answer":
            return AttestationAnswered(command.attestation_answer.code, command.attestation_answer.message)
        case "heartbeat_ack":
            return Acknowledged(command.heartbeat_ack.sequence)
        case "lease":
            return _offered(command.lease)
        case "cancel":
            return Cancelled(command.cancel.lease_id, command.cancel.reason[:MAX_REASON_CHARS])
        case "settlement_answer":
            answer = command.settlement_answer
            return Answered(answer.lease_id, answer.code, answer.message[:MAX_REASON_CHARS])
        case "owed":
            return Owed(command.owed.lease_id, command.owed.fence, command.owed.nonce)
        case "certificate_news":
            news = command.certificate_news
            return AuthoritiesChanged(news.ca_bundle_pem.decode("ascii", "replace"), news.renew_now)
        case "goodbye":
            return Dismissed(command.goodbye.code[:64])
    return None


def _welcomed(sent: Any) -> Welcomed:
    return Welcomed(
        session=sent.session,
        heartbeat_interval_ms=sent.heartbeat_interval_ms,
        settle_grace_ms=sent.settle_grace_ms,
        max_batch_bytes=sent.max_batch_bytes,
        void_lease_ids=tuple(sent.void_lease_ids),
        ca_bundle_pem=sent.ca_bundle_pem.decode("ascii", "replace"),
    )


def _offered(sent: Any) -> Offered | Unreadable:
    try:
        return Offered(
            LeaseOffer(
                lease_id=sent.lease_id,
                fence=sent.fence,
                run_id=sent.run_id,
                call_id=sent.call_id,
                principal=sent.principal,
                tool=sent.tool,
                arguments=read_arguments(sent.arguments_json, sent.argument_digest),
                argument_digest=sent.argument_digest,
                tier=sent.tier,
                obligations=read_obligations(sent.obligations_json),
                scope=WorkerWorkspaceScope(
                    root=sent.scope.root,
                    allowed_paths=tuple(sent.scope.allowed_paths),
                    read_only=sent.scope.read_only,
                    folders=tuple(sent.scope.folders),
                ),
                inputs=tuple(artifact_of(each) for each in sent.inputs),
                nonce=sent.nonce,
                timeout_ms=sent.timeout_ms,
                max_output_bytes=sent.max_output_bytes,
            )
        )
    except PalyraError as refusal:
        return Unreadable(sent.lease_id, sent.fence, refusal)


def artifact_of(sent: Any) -> ArtifactRef:
    return ArtifactRef(path=sent.path, digest_sha256=sent.digest_sha256, size=sent.size, executable=sent.executable)


def signed(statement: SignedStatement) -> wire.SignedStatement:
    return wire.SignedStatement(payload=statement.payload, signature=statement.signature)


def disclaimer(said: LeaseDisclaimer, key: DeviceKey) -> wire.WorkerEvent:
    return wire.WorkerEvent(
        disclaimer=wire.LeaseDisclaimer(lease_id=said.cleanup.lease_id, statement=signed(sign_disclaimer(said, key)))
    )


def settlement(note: LeaseNote, worker_id: str, key: DeviceKey) -> wire.WorkerEvent:
    """Signed now, with the key in force: by the time it is told that may be another than when the call ended."""
    if note.end is None:
        raise ValueError("a lease that runs cannot be settled")
    envelope, digest = attest_with_digest(execution_of(note, worker_id), (key,))
    return wire.WorkerEvent(
        settlement=wire.Settlement(
            lease_id=note.lease_id,
            statement=signed(sign_settlement(settlement_of(note, worker_id, digest), key)),
            result_json=canonical_json(note.end.result),
            attestation_json=envelope.to_json(),
            error_json=b"" if note.end.error is None else msgspec.json.encode(note.end.error),
        )
    )
