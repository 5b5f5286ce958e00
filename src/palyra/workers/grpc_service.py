"""``WorkerService`` over gRPC: every call and every message through the gate, then to the desk that it concerns."""

import asyncio
from typing import Any, Final, Protocol

import grpc

from palyra.errors import Denied, InvalidInput, LimitExceeded, PalyraError
from palyra.identity.device import DeviceKind, actor_of
from palyra.wire.worker.v1 import worker_pb2 as wire
from palyra.wire.worker.v1.worker_pb2_grpc import WorkerServiceServicer
from palyra.workers import daemon_messages, service_limits
from palyra.workers.artifact_desk import ArtifactDesk
from palyra.workers.fleet_desk import FleetDesk, Hello, Session, challengeable
from palyra.workers.fleet_ports import DeviceKeys, Gate
from palyra.workers.grpc_stream import CLOSED, Ending, Hear, WorkerStream, abort_with, turn_away
from palyra.workers.lease import StaleFence, WrongWorker
from palyra.workers.worker_events import WorkerEvents

WORKERS: Final = frozenset((DeviceKind.WORKER,))
_WORK: Final = "Work"
_RENEW: Final = "RenewCertificate"
_LEAVE: Final = "LeaveFleet"
_FIND: Final = "FindMissingArtifacts"
_UPLOAD: Final = "UploadArtifact"
_DOWNLOAD: Final = "DownloadArtifact"


class UnknownProtocol(InvalidInput):
    code = "worker.unknown_protocol"
    hint = f"this daemon speaks version {service_limits.PROTOCOL_VERSION}: install the same release on both sides"


class HelloFirst(InvalidInput):
    code = "worker.hello_first"
    hint = "a worker's first message on a stream has its hello and nothing before it"


class TooMuchTold(LimitExceeded):
    code = "worker.too_much_told"
    hint = "name the leases that there are, and send fewer events at once"


class Leave(Protocol):
    async def __call__(self, worker_id: str, *, reason: str, actor: str) -> None:
        """Removes a worker from the fleet and ends its pairing."""


class WorkerService(WorkerServiceServicer):
    def __init__(
        self,
        *,
        gate: Gate,
        desk: FleetDesk,
        events: WorkerEvents,
        artifacts: ArtifactDesk,
        keys: DeviceKeys,
        leave: Leave,
    ) -> None:
        self._gate = gate
        self._desk = desk
        self._events = events
        self._artifacts = artifacts
        self._keys = keys
        self._leave = leave

    async def Work(self, _messages: Any, context: Any) -> None:  # noqa: N802
        fingerprint = await self._gate.fingerprint(context, _WORK)
        stream = WorkerStream(context)
        opened = await self._opened(context, fingerprint, stream)
        if opened is None:
            return
        session, hear = opened
        ending = Ending(CLOSED)
        try:
            ending = await stream.run(hear)
        finally:
            await asyncio.shield(self._desk.close(session))
        if isinstance(ending.refusal, Denied):
            await self._gate.refuse(context, ending.refusal, _WORK, fingerprint)
        if ending.refusal is not None:
            await abort_with(context, ending.refusal)
        if ending.cut:
            await turn_away(context, ending.code)

    async def _opened(self, context: Any, fingerprint: str, stream: WorkerStream) -> tuple[Session, Hear] | None:
        """The session that the first message opens. Of that message, and of what answers it, a thousand streams that
        wait for hours keep nothing."""
        first = await _first(context)
        if first is None:
            return None
        peer = await self._gate.admit_message(context, fingerprint, WORKERS, first.device_id, _WORK)
        try:
            hello = _hello(first)
            key = self._keys.of_certificate(context.auth_context()["x509_pem_cert"][0])
            session, record = await self._desk.open(str(peer.device_id), hello, stream, key)
        except Denied as refusal:
            await self._gate.refuse(context, refusal, _WORK, fingerprint)
        except PalyraError as error:
            await abort_with(context, error)
        try:
            await self._gate.identities.used(peer)
            void, bundle = self._desk.void(record, hello.open_lease_ids), self._gate.identities.ca_bundle_pem()
            stream.send(daemon_messages.welcome(record, self._desk.policy, void, bundle))
            if challengeable(record):
                stream.send(daemon_messages.challenge(record.nonce, self._desk.policy))
        except BaseException:
            await asyncio.shield(self._desk.close(session))
            raise
        return session, self._hearing(session, fingerprint, tuple(first.events[1:]))

    def _hearing(self, session: Session, fingerprint: str, rest: tuple[Any, ...]) -> Hear:
        """``rest`` is what came in the same message as the hello: it is heard too."""
        check, events = self._gate.check, self._events

        async def hear(batch: Any) -> str | None:
            nonlocal rest
            check(fingerprint, WORKERS, batch.device_id)
            if len(batch.events) > service_limits.MAX_EVENTS_PER_BATCH:
                raise TooMuchTold(f"a message has at most {service_limits.MAX_EVENTS_PER_BATCH} events")
            said, rest = (*rest, *batch.events), ()
            return await events.hear(session, batch.sequence, said)

        return hear

    async def FindMissingArtifacts(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer = await self._gate.admit(context, WORKERS, request.device_id, _FIND)
        try:
            if len(request.digests_sha256) > service_limits.MAX_DIGESTS_ASKED:
                raise TooMuchTold(f"at most {service_limits.MAX_DIGESTS_ASKED} digests are answered at once")
            missing = await self._artifacts.missing(
                str(peer.device_id), request.lease_id, request.fence, list(request.digests_sha256)
            )
        except PalyraError as error:
            await self._refused(error, context, _FIND, peer.fingerprint)
        return wire.FindMissingArtifactsResponse(digests_sha256=missing)

    async def UploadArtifact(self, parts: Any, context: Any) -> Any:  # noqa: N802
        fingerprint = await self._gate.fingerprint(context, _UPLOAD)
        first = await context.read()
        head = None if first is grpc.aio.EOF else first.head
        claimed = "" if head is None else head.device_id
        peer = await self._gate.admit_message(context, fingerprint, WORKERS, claimed, _UPLOAD)
        assert head is not None
        try:
            async with self._artifacts.receiving(
                str(peer.device_id), head.lease_id, head.fence, head.digest_sha256, head.size
            ) as incoming:
                while (part := await context.read()) is not grpc.aio.EOF:
                    await incoming.write(part.chunk.offset, part.chunk.data)
        except PalyraError as error:
            await self._refused(error, context, _UPLOAD, fingerprint)
        return wire.UploadArtifactResponse(digest_sha256=head.digest_sha256)

    async def DownloadArtifact(self, request: Any, context: Any) -> None:  # noqa: N802
        peer = await self._gate.admit(context, WORKERS, request.device_id, _DOWNLOAD)
        try:
            async for offset, data in self._artifacts.sending(
                str(peer.device_id), request.lease_id, request.fence, request.digest_sha256, request.offset
            ):
                await context.write(wire.ArtifactChunk(offset=offset, data=data))
        except PalyraError as error:
            await self._refused(error, context, _DOWNLOAD, peer.fingerprint)

    async def RenewCertificate(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer = await self._gate.admit_renewal(context, WORKERS, request.device_id, _RENEW)
        try:
            issued = await self._gate.identities.renew(peer, request.csr_der, request.generation)
        except Denied as refusal:
            await self._gate.refuse(context, refusal, _RENEW, peer.fingerprint)
        except PalyraError as error:
            await abort_with(context, error)
        return wire.RenewCertificateResponse(
            certificate_pem=issued.certificate_pem, ca_bundle_pem=issued.ca_bundle_pem, generation=issued.generation
        )

    async def LeaveFleet(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer = await self._gate.admit(context, WORKERS, request.device_id, _LEAVE)
        try:
            actor = actor_of(peer.kind, peer.device_id)
            await self._leave(str(peer.device_id), reason=request.reason or "the worker left", actor=actor)
        except PalyraError as error:
            await abort_with(context, error)
        return wire.LeaveFleetResponse()

    async def _refused(self, error: PalyraError, context: Any, method: str, fingerprint: str) -> None:
        """Who reaches for another's files is recorded."""
        if isinstance(error, WrongWorker | StaleFence):
            await self._gate.note(error, method, fingerprint)
        await abort_with(context, error)


async def _first(context: Any) -> Any:
    try:
        async with asyncio.timeout(service_limits.HELLO_SECONDS):
            first = await context.read()
    except TimeoutError:
        return None
    return None if first is grpc.aio.EOF else first


def _hello(first: Any) -> Hello:
    if not first.events or first.events[0].WhichOneof("event") != "hello":
        raise HelloFirst("the first message has no hello")
    said = first.events[0].hello
    if said.protocol_version != service_limits.PROTOCOL_VERSION:
        raise UnknownProtocol(f"protocol version {said.protocol_version} is not known here")
    if len(said.open_lease_ids) > service_limits.MAX_OPEN_LEASES_NAMED:
        raise TooMuchTold(f"more than {service_limits.MAX_OPEN_LEASES_NAMED} open leases were named")
    return Hello(
        name=said.display_name,
        boot_id=said.boot_id[:64],
        slots=said.slots,
        open_lease_ids=frozenset(said.open_lease_ids),
    )
