"""Messages of the wire as values, and back. Nothing is decided here."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from enum import StrEnum
from typing import Any, Final

import grpc
import msgspec

from palyra.canonical import canonical_json
from palyra.devicelink.agent.identity import Credentials, Renewed
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.agent.lease import (
    LeaseNote,
    LeaseOffer,
    execution_of,
    read_arguments,
    read_obligations,
    settlement_of,
)
from palyra.fleet.agent.messages import (
    Acknowledged,
    Answered,
    AttestationAnswered,
    AuthoritiesChanged,
    Cancelled,
    Challenged,
    DeviceKey,
    Dismissed,
    Heard,
    Offered,
    Owed,
    Unreadable,
    Welcomed,
)
from palyra.fleet.domain.settlement import LeaseDisclaimer, sign_disclaimer, sign_settlement
from palyra.fleet.domain.signed_statement import SignedStatement
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.fleet.limits import MAX_REASON_CHARS
from palyra.identity.certificate import SERVER_NAME
from palyra.signing.tool_attestation import attest_with_digest
from palyra.wire.worker.v1 import worker_pb2 as wire
from palyra.wire.worker.v1.worker_pb2_grpc import WorkerServiceStub


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


# One connection of a worker to its daemon over mutual TLS: the stream, the artifacts beside it, the certificate.

_OPTIONS: Final = (
    ("grpc.ssl_target_name_override", SERVER_NAME),
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    # Each link has a connection of its own: a new certificate is not shown on an old one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_MS),
)


# The daemon heard the call and refused it.
_FINAL: Final = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)


class LossKind(StrEnum):
    # Nobody answered, or the line broke: to be tried again.
    UNREACHABLE = "unreachable"
    # The daemon does not know the certificate.
    REFUSED = "refused"
    # It knows it, and does not listen to it now: a worker in quarantine is released in time.
    TURNED_AWAY = "turned_away"


class LinkLost(Exception):
    """``final``: the daemon heard and said no; asking again would change nothing."""

    def __init__(self, kind: LossKind, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why
        self.final = final


class WorkerLink:
    """Made for one address and one certificate; used once."""

    def __init__(self, address: str, credentials: Credentials, worker_id: str) -> None:
        self._channel = grpc.aio.secure_channel(
            address,
            grpc.ssl_channel_credentials(
                root_certificates=credentials.ca_bundle_pem.encode(),
                private_key=credentials.key_pem.reveal().encode(),
                certificate_chain=credentials.certificate_pem.encode(),
            ),
            options=_OPTIONS,
        )
        self._stub: Any = WorkerServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._worker_id = worker_id
        self._sequence = 0
        self._batch_bytes = limits.DEFAULT_BATCH_BYTES
        self._waiting: asyncio.Queue[wire.WorkerEvent | None] = asyncio.Queue()

    def send(self, **event: Any) -> None:
        self._waiting.put_nowait(wire.WorkerEvent(**event))

    def send_event(self, event: wire.WorkerEvent) -> None:
        self._waiting.put_nowait(event)

    def show(self, **event: Any) -> None:
        """For what may be left out when the line is slow."""
        if self._waiting.qsize() < limits.MAX_WAITING_EVENTS:
            self.send(**event)

    def say_no_more(self) -> None:
        """Ends our half of the stream, after what waits."""
        self._waiting.put_nowait(None)

    async def stream(self, on_heard: Callable[[Heard], None]) -> None:
        """Until the stream ends. Raises ``LinkLost`` however it does."""
        call = self._stub.Work(self._outgoing())
        welcomed = False
        try:
            async with asyncio.timeout(limits.OPEN_SECONDS) as opening:
                async for batch in call:
                    for command in batch.commands:
                        said = heard(command)
                        if isinstance(said, Welcomed):
                            welcomed = True
                            opening.reschedule(None)
                            self._batch_bytes = said.max_batch_bytes or self._batch_bytes
                        if said is not None:
                            on_heard(said)
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from None
        except TimeoutError:
            raise LinkLost(LossKind.UNREACHABLE, "the daemon does not answer on the stream") from None
        finally:
            call.cancel()
            # Nobody reads what we say any more: whoever waits to say it ends as well.
            self.say_no_more()
        raise LinkLost(LossKind.UNREACHABLE, "the daemon ended the stream" if welcomed else "the daemon said nothing")

    async def find_missing(self, lease_id: str, fence: int, digests: Iterable[str]) -> set[str]:
        request = wire.FindMissingArtifactsRequest(
            device_id=self._worker_id, lease_id=lease_id, fence=fence, digests_sha256=list(digests)
        )
        answer = await self._call(self._stub.FindMissingArtifacts(request, timeout=limits.CALL_SECONDS))
        return set(answer.digests_sha256)

    async def upload(self, lease_id: str, fence: int, artifact: ArtifactRef, descriptor: int) -> None:
        head = wire.UploadHead(
            device_id=self._worker_id,
            lease_id=lease_id,
            fence=fence,
            digest_sha256=artifact.digest_sha256,
            size=artifact.size,
        )

        async def parts() -> AsyncIterator[wire.UploadArtifactRequest]:
            yield wire.UploadArtifactRequest(head=head)
            offset = 0
            while data := await asyncio.to_thread(os.pread, descriptor, limits.CHUNK_BYTES, offset):
                yield wire.UploadArtifactRequest(chunk=wire.ArtifactChunk(offset=offset, data=data))
                offset += len(data)

        await self._call(self._stub.UploadArtifact(parts(), timeout=limits.ARTIFACT_SECONDS))

    async def download(self, lease_id: str, fence: int, artifact: ArtifactRef, write: Callable[[bytes], None]) -> None:
        """In order and without gaps; who writes checks the digest."""
        request = wire.DownloadArtifactRequest(
            device_id=self._worker_id, lease_id=lease_id, fence=fence, digest_sha256=artifact.digest_sha256, offset=0
        )
        expected = 0
        call = self._stub.DownloadArtifact(request, timeout=limits.ARTIFACT_SECONDS)
        try:
            async for chunk in call:
                if chunk.offset != expected:
                    raise LinkLost(LossKind.UNREACHABLE, "the daemon left a part of an artifact out")
                await asyncio.to_thread(write, chunk.data)
                expected += len(chunk.data)
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from None
        finally:
            call.cancel()

    async def renew(self, csr_der: bytes, generation: int) -> Renewed:
        request = wire.RenewCertificateRequest(device_id=self._worker_id, csr_der=csr_der, generation=generation)
        answer = await self._call(self._stub.RenewCertificate(request, timeout=limits.CALL_SECONDS))
        return Renewed(
            certificate_pem=answer.certificate_pem.decode("ascii", "replace"),
            ca_bundle_pem=answer.ca_bundle_pem.decode("ascii", "replace"),
            generation=answer.generation,
        )

    async def leave(self, reason: str) -> None:
        request = wire.LeaveFleetRequest(device_id=self._worker_id, reason=reason)
        await self._call(self._stub.LeaveFleet(request, timeout=limits.CALL_SECONDS))

    async def close(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._channel.close()

    async def _call(self, call: Any) -> Any:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from None
        except asyncio.CancelledError:
            # A channel that was closed meanwhile cancels its calls; whoever cancels us wants to be obeyed.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LinkLost(LossKind.UNREACHABLE, "the link was closed") from None

    async def _outgoing(self) -> AsyncIterator[wire.WorkerBatch]:
        """What has gathered since the last message, up to the size that the daemon takes at once."""
        kept: wire.WorkerEvent | None = None
        while True:
            event = kept if kept is not None else await self._waiting.get()
            kept = None
            if event is None:
                return
            events, size = [event], event.ByteSize()
            ended = False
            while not self._waiting.empty():
                following = self._waiting.get_nowait()
                if following is None:
                    ended = True
                    break
                size += following.ByteSize()
                if size > self._batch_bytes:
                    kept = following
                    break
                events.append(following)
            self._sequence += 1
            yield wire.WorkerBatch(device_id=self._worker_id, sequence=self._sequence, events=events)
            if ended:
                return


def _lost(error: grpc.aio.AioRpcError) -> LinkLost:
    code = error.code()
    kind = LossKind.UNREACHABLE
    if code is grpc.StatusCode.UNAUTHENTICATED:
        kind = LossKind.REFUSED
    elif code is grpc.StatusCode.PERMISSION_DENIED:
        kind = LossKind.TURNED_AWAY
    return LinkLost(kind, f"{code.name.lower()}: {(error.details() or '')[:200]}", final=code in _FINAL)
