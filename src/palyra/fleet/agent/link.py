"""One connection of a worker to its daemon over mutual TLS: the stream, and the calls beside it."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from enum import StrEnum
from typing import Any, Final

import grpc
import msgspec

from palyra.canonical import canonical_json
from palyra.devicelink.agent.channel import describe_failure, is_cancelling, open_channel, read_renewal
from palyra.devicelink.agent.identity import Credentials, Renewed
from palyra.fleet import limits
from palyra.fleet.agent.lease import (
    LeaseNote,
    LeaseOffer,
    execution_of,
    read_arguments,
    read_obligations,
    settlement_of,
)
from palyra.fleet.domain.settlement import LeaseDisclaimer
from palyra.fleet.domain.signed_statement import SignedStatement, sign_statement
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.signing.dsse import Signer
from palyra.signing.tool_attestation import attest_with_digest
from palyra.wire.worker.v1 import worker_pb2 as wire
from palyra.wire.worker.v1.worker_pb2_grpc import WorkerServiceStub


def read_offer(sent: Any) -> LeaseOffer:
    """Read a lease from the wire. Raise BadOffer for arguments or obligations that cannot be read."""
    return LeaseOffer(
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
        inputs=tuple(
            ArtifactRef(path=each.path, digest_sha256=each.digest_sha256, size=each.size, executable=each.executable)
            for each in sent.inputs
        ),
        nonce=sent.nonce,
        timeout_ms=sent.timeout_ms,
        max_output_bytes=sent.max_output_bytes,
    )


def to_wire(statement: SignedStatement) -> wire.SignedStatement:
    return wire.SignedStatement(payload=statement.payload, signature=statement.signature)


def to_disclaimer_event(disclaimer: LeaseDisclaimer, key: Signer) -> wire.WorkerEvent:
    statement = to_wire(sign_statement(disclaimer, key))
    return wire.WorkerEvent(disclaimer=wire.LeaseDisclaimer(lease_id=disclaimer.cleanup.lease_id, statement=statement))


def to_settlement_event(note: LeaseNote, worker_id: str, key: Signer) -> wire.WorkerEvent:
    """Sign the end of a lease with the present key, which may be newer than the call."""
    if note.end is None:
        raise ValueError("a lease that runs cannot be settled")
    envelope, digest = attest_with_digest(execution_of(note, worker_id), (key,))
    return wire.WorkerEvent(
        settlement=wire.Settlement(
            lease_id=note.lease_id,
            statement=to_wire(sign_statement(settlement_of(note, worker_id, digest), key)),
            result_json=canonical_json(note.end.result),
            attestation_json=envelope.to_json(),
            error_json=b"" if note.end.error is None else msgspec.json.encode(note.end.error),
        )
    )


# The daemon received the call and refused it.
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
    # No answer, or the connection broke: worth another try.
    UNREACHABLE = "unreachable"
    # The daemon does not know the certificate.
    REFUSED = "refused"
    # The daemon knows the worker and does not take its messages now, as in a quarantine.
    TURNED_AWAY = "turned_away"


class LinkLost(Exception):
    """``final``: the daemon received the call and refused it, so a repetition would change nothing."""

    def __init__(self, kind: LossKind, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why
        self.final = final


class WorkerLink:
    """Made for one address and one certificate; used once."""

    def __init__(self, address: str, credentials: Credentials, worker_id: str) -> None:
        self._channel = open_channel(address, credentials)
        self._stub: Any = WorkerServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._worker_id = worker_id
        self._sequence = 0
        self._batch_bytes = limits.DEFAULT_BATCH_BYTES
        self._waiting: asyncio.Queue[wire.WorkerEvent | None] = asyncio.Queue()

    def send(self, **event: Any) -> None:
        self._waiting.put_nowait(wire.WorkerEvent(**event))

    def send_event(self, event: wire.WorkerEvent) -> None:
        self._waiting.put_nowait(event)

    def send_unless_full(self, **event: Any) -> None:
        """Drop the event if too many wait already."""
        if self._waiting.qsize() < limits.MAX_WAITING_EVENTS:
            self.send(**event)

    def finish_sending(self) -> None:
        """End this side of the stream after the waiting events."""
        self._waiting.put_nowait(None)

    async def stream(self, on_message: Callable[[Any], None]) -> None:
        """Give each ``DaemonCommand`` to ``on_message`` until the stream ends. Raise ``LinkLost`` at any end."""
        call = self._stub.Work(self._outgoing())
        welcomed = False
        try:
            async with asyncio.timeout(limits.OPEN_SECONDS) as opening:
                async for batch in call:
                    for command in batch.commands:
                        if command.WhichOneof("command") == "welcome":
                            welcomed = True
                            opening.reschedule(None)
                            self._batch_bytes = command.welcome.max_batch_bytes or self._batch_bytes
                        on_message(command)
        except grpc.aio.AioRpcError as error:
            raise _to_lost(error) from None
        except TimeoutError:
            raise LinkLost(LossKind.UNREACHABLE, "the daemon does not answer on the stream") from None
        finally:
            call.cancel()
            # Ends ``_outgoing``, which nothing reads any more.
            self.finish_sending()
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
        """Write the parts in order and without gaps. The caller checks the digest."""
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
            raise _to_lost(error) from None
        finally:
            call.cancel()

    async def renew(self, csr_der: bytes, generation: int) -> Renewed:
        request = wire.RenewCertificateRequest(device_id=self._worker_id, csr_der=csr_der, generation=generation)
        return read_renewal(await self._call(self._stub.RenewCertificate(request, timeout=limits.CALL_SECONDS)))

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
            raise _to_lost(error) from None
        except asyncio.CancelledError:
            if is_cancelling():
                raise
            raise LinkLost(LossKind.UNREACHABLE, "the link was closed") from None

    async def _outgoing(self) -> AsyncIterator[wire.WorkerBatch]:
        """Yield the waiting events in batches, each up to the size that the daemon takes."""
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


def _to_lost(error: grpc.aio.AioRpcError) -> LinkLost:
    kind = LossKind.UNREACHABLE
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        kind = LossKind.REFUSED
    elif error.code() is grpc.StatusCode.PERMISSION_DENIED:
        kind = LossKind.TURNED_AWAY
    return LinkLost(kind, describe_failure(error), final=error.code() in _FINAL)
