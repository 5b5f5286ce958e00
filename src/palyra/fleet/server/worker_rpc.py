"""``WorkerService`` over gRPC: a connected worker's events are verified, decided by the ledger, and answered."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc

from palyra.devicelink.server.gate import PeerGate, abort_with
from palyra.errors import Denied, InvalidInput, LimitExceeded, PalyraError
from palyra.fleet import limits
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import StaleFence, WorkerLease, WrongWorker
from palyra.fleet.domain.settlement import (
    LeaseDisclaimer,
    SettledResult,
    SettlementDisagrees,
    read_settlement,
    require_of_lease,
    settlement_digest,
)
from palyra.fleet.domain.signed_statement import MalformedStatement, SignedStatement, open_statement
from palyra.fleet.server import messages
from palyra.fleet.server.fleet_service import FleetSessions, Hello, Session, is_challengeable
from palyra.fleet.server.lease_service import LeaseService, OutputTails
from palyra.fleet.server.messages import DeviceKeys
from palyra.fleet.server.stream import CLOSED, OnBatch, WorkerStream, WorkerStreamEnd, turn_away
from palyra.fleet.store.artifacts import LeaseArtifacts
from palyra.identity.device import DeviceKind, actor_of
from palyra.signing.dsse import BadSignature
from palyra.wire.worker.v1 import worker_pb2 as wire
from palyra.wire.worker.v1.worker_pb2_grpc import WorkerServiceServicer

LEFT: Final = "worker.left"
# Errors that no honest worker causes.
_LIES: Final = (SettlementDisagrees, BadSignature, MalformedStatement)


class TooManyRefusals(LimitExceeded):
    code = "worker.too_many_refusals"
    hint = "nearly every message of this worker is refused: read its own log"


@dataclass(eq=False)
class WorkerEvents:
    sessions: FleetSessions
    leases: LeaseService
    artifacts: LeaseArtifacts
    output: OutputTails

    async def on_message(self, session: Session, sequence: int, events: tuple[Any, ...]) -> str | None:
        """Handle all events of one message. The ledger decides them together, before the next message is read."""
        deciding: list[Coroutine[Any, Any, None]] = []
        beat: Any = None
        for event in events:
            match event.WhichOneof("event"):
                case "heartbeat":
                    beat = event.heartbeat
                    self.sessions.beat(session, beat.workspaces, beat.slots)
                case "output":
                    self._add_output(session, event.output)
                case "accepted":
                    self._note_accepted(session, event.accepted)
                case "attestation":
                    deciding.append(self._attest(session, event.attestation))
                case "declined":
                    deciding.append(self._decline(session, event.declined))
                case "disclaimer":
                    deciding.append(self._disclaim(session, event.disclaimer))
                case "settlement":
                    self.sessions.reset_workspace_count(session)
                    deciding.append(self._settle(session, event.settlement))
                case "leaving":
                    return LEFT
                case _:
                    # Empty, or of a newer version of the protocol.
                    session.refused += 1
        if beat is not None and not (deciding and self.leases.busy):
            self._acknowledge(session, sequence, beat.slots)
        await asyncio.gather(*deciding)
        if session.refused > limits.MAX_REFUSED_MESSAGES:
            raise TooManyRefusals(f"{session.refused} messages of this connection were refused")
        return None

    def _acknowledge(self, session: Session, sequence: int, slots: int) -> None:
        """Answer a heartbeat, unless the daemon is busy and another message was sent since the last heartbeat.

        A worker that winds down always gets an answer, because it waits for the messages that are kept back.
        """
        stream = session.stream
        if stream.sent == session.sent or not slots or not self.leases.busy:
            stream.send(messages.acknowledge_heartbeat(sequence))
        session.sent = stream.sent

    async def _attest(self, session: Session, sent: Any) -> None:
        decision = await self.sessions.attest(session, SignedStatement(sent.payload, sent.signature))
        if decision.refusal is not None:
            session.refused += 1
        next_ms = self.sessions.policy.challenge_after_ms()
        session.stream.send(messages.answer_attestation(decision.refusal, next_ms))
        self.sessions.follow_attestation(session, decision)

    async def _decline(self, session: Session, sent: Any) -> None:
        await self._decide(
            session,
            commands.DeclineLease(
                actor=session.actor,
                worker_id=session.worker_id,
                lease_id=sent.lease_id[:64],
                session=session.number,
                fence=sent.fence,
                reason=sent.reason,
            ),
        )

    async def _disclaim(self, session: Session, sent: Any) -> None:
        statement: LeaseDisclaimer | None = None
        lie: PalyraError | None = None
        try:
            signed = SignedStatement(sent.statement.payload, sent.statement.signature)
            statement = open_statement(LeaseDisclaimer, signed, session.key)
        except _LIES as error:
            lie = error
        lease_id = sent.lease_id[:64]
        refusal = await self._decide(
            session,
            commands.DisclaimLease(
                actor=session.actor,
                worker_id=session.worker_id,
                lease_id=lease_id,
                session=session.number,
                statement=statement,
                refusal=lie,
            ),
        )
        session.stream.send(messages.answer_settlement(lease_id, refusal))

    async def _settle(self, session: Session, sent: Any) -> None:
        lease_id = sent.lease_id[:64]
        signed = SignedStatement(sent.statement.payload, sent.statement.signature)
        refusal: PalyraError | None = None
        try:
            settled: SettledResult | None = read_settlement(
                signed, sent.result_json, sent.attestation_json, sent.error_json, session.key
            )
            assert settled is not None
            lease = self.leases.lease_of(lease_id)
            if lease.worker_id == session.worker_id:
                require_of_lease(settled, lease)
                if settled.statement.artifacts and self.sessions.ledger.lease(lease_id).is_open:
                    self.sessions.confirm_lease(session.worker_id, lease)
                    await self.artifacts.require_all(lease, settled.statement.artifacts)
                self.leases.stage_result(lease_id, settled)
        except _LIES as lie:
            settled, refusal = None, lie
        except PalyraError as error:
            # Something is missing: the worker can send it again, or another result.
            session.refused += 1
            session.stream.send(messages.answer_settlement(lease_id, error))
            return
        try:
            refusal = await self._decide(
                session,
                commands.SettleLease(
                    actor=session.actor,
                    worker_id=session.worker_id,
                    lease_id=lease_id,
                    session=session.number,
                    statement=None if settled is None else settled.statement,
                    digest=settlement_digest(signed),
                    refusal=refusal,
                ),
            )
        finally:
            self.leases.discard_result(lease_id)
        answer = messages.answer_settlement(lease_id, refusal)
        if refusal is None and self.leases.busy:
            # The worker only forgets the lease after it, which can wait for the next lease or heartbeat.
            session.stream.send_along(answer)
        else:
            session.stream.send(answer)

    async def _decide(self, session: Session, command: commands.FleetCommand) -> PalyraError | None:
        """Decide a command. Count and return its refusal."""
        refusal = (await self.sessions.batcher.decide(command)).refusal
        session.refused += refusal is not None
        return refusal

    def _require_held(self, session: Session, sent: Any) -> WorkerLease:
        """Return the lease with this fencing number. Naming it shows that the worker has it."""
        lease = self.leases.lease_of(sent.lease_id[:64])
        if lease.worker_id != session.worker_id or lease.fence != sent.fence:
            raise Denied("the worker never held this lease")
        self.sessions.confirm_lease(session.worker_id, lease)
        return lease

    def _note_accepted(self, session: Session, sent: Any) -> None:
        try:
            self._require_held(session, sent)
        except PalyraError:
            session.refused += 1

    def _add_output(self, session: Session, sent: Any) -> None:
        try:
            lease = self._require_held(session, sent)
            if not lease.is_open:
                raise Denied("the lease is over")
            self.output.add(lease.lease_id, sent.stream, sent.offset, sent.data)
        except PalyraError:
            session.refused += 1


WORKERS: Final = frozenset((DeviceKind.WORKER,))
_WORK: Final = "Work"
_RENEW: Final = "RenewCertificate"
_LEAVE: Final = "LeaveFleet"
_FIND: Final = "FindMissingArtifacts"
_UPLOAD: Final = "UploadArtifact"
_DOWNLOAD: Final = "DownloadArtifact"


class UnknownProtocol(InvalidInput):
    code = "worker.unknown_protocol"
    hint = f"this daemon speaks version {limits.PROTOCOL_VERSION}: install the same release on both sides"


class HelloFirst(InvalidInput):
    code = "worker.hello_first"
    hint = "a worker's first message on a stream has its hello and nothing before it"


class TooMuchAtOnce(LimitExceeded):
    code = "worker.too_much_told"
    hint = "name the leases that there are, and send fewer events at once"


class Leave(Protocol):
    async def __call__(self, worker_id: str, *, reason: str, actor: str) -> None:
        """Remove a worker from the fleet and end its pairing."""


@dataclass(eq=False, kw_only=True)
class WorkerService(WorkerServiceServicer):
    gate: PeerGate
    sessions: FleetSessions
    events: WorkerEvents
    artifacts: LeaseArtifacts
    keys: DeviceKeys
    leave: Leave

    async def Work(self, _messages: Any, context: Any) -> None:  # noqa: N802
        fingerprint = await self.gate.fingerprint(context, _WORK)
        stream = WorkerStream(context)
        opened = await self._open_session(context, fingerprint, stream)
        if opened is None:
            return
        session, on_message = opened
        ending = WorkerStreamEnd(CLOSED)
        try:
            ending = await stream.run(on_message)
        finally:
            await asyncio.shield(self.sessions.close(session))
        if isinstance(ending.refusal, Denied):
            await self.gate.refuse(context, ending.refusal, _WORK, fingerprint)
        if ending.refusal is not None:
            await abort_with(context, ending.refusal)
        if ending.cut:
            await turn_away(context, ending.code)

    async def _open_session(
        self, context: Any, fingerprint: str, stream: WorkerStream
    ) -> tuple[Session, OnBatch] | None:
        """Open the session with the first message, which is not kept: a thousand streams may wait for hours."""
        first = await _read_first(context)
        if first is None:
            return None
        peer = await self.gate.admit_message(context, fingerprint, WORKERS, first.device_id, _WORK)
        try:
            hello = _read_hello(first)
            key = self.keys.of_certificate(context.auth_context()["x509_pem_cert"][0])
            session, record = await self.sessions.open(str(peer.device_id), hello, stream, key)
        except Denied as refusal:
            await self.gate.refuse(context, refusal, _WORK, fingerprint)
        except PalyraError as error:
            await abort_with(context, error)
        try:
            await self.gate.identities.used(peer)
            void = sorted(hello.open_lease_ids - set(record.open_leases))
            bundle = self.gate.identities.ca_bundle_pem()
            stream.send(messages.welcome(record, self.sessions.policy, void, bundle))
            if is_challengeable(record):
                stream.send(messages.challenge(record.nonce, self.sessions.policy))
        except BaseException:
            await asyncio.shield(self.sessions.close(session))
            raise
        return session, self._make_handler(session, fingerprint, tuple(first.events[1:]))

    def _make_handler(self, session: Session, fingerprint: str, rest: tuple[Any, ...]) -> OnBatch:
        """Make the handler of later messages. ``rest`` are the events that came with the hello."""
        check, events = self.gate.check, self.events

        async def on_message(batch: Any) -> str | None:
            nonlocal rest
            check(fingerprint, WORKERS, batch.device_id)
            if len(batch.events) > limits.MAX_EVENTS_PER_BATCH:
                raise TooMuchAtOnce(f"a message has at most {limits.MAX_EVENTS_PER_BATCH} events")
            received, rest = (*rest, *batch.events), ()
            return await events.on_message(session, batch.sequence, received)

        return on_message

    async def FindMissingArtifacts(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer = await self.gate.admit(context, WORKERS, request.device_id, _FIND)
        try:
            if len(request.digests_sha256) > limits.MAX_DIGESTS_PER_REQUEST:
                raise TooMuchAtOnce(f"at most {limits.MAX_DIGESTS_PER_REQUEST} digests are answered at once")
            missing = await self.artifacts.missing(
                str(peer.device_id), request.lease_id, request.fence, list(request.digests_sha256)
            )
        except PalyraError as error:
            await self._refuse(error, context, _FIND, peer.fingerprint)
        return wire.FindMissingArtifactsResponse(digests_sha256=missing)

    async def UploadArtifact(self, parts: Any, context: Any) -> Any:  # noqa: N802
        fingerprint = await self.gate.fingerprint(context, _UPLOAD)
        first = await context.read()
        head = None if first is grpc.aio.EOF else first.head
        claimed = "" if head is None else head.device_id
        peer = await self.gate.admit_message(context, fingerprint, WORKERS, claimed, _UPLOAD)
        assert head is not None
        try:
            async with self.artifacts.receiving(
                str(peer.device_id), head.lease_id, head.fence, head.digest_sha256, head.size
            ) as write:
                while (part := await context.read()) is not grpc.aio.EOF:
                    await write(part.chunk.offset, part.chunk.data)
        except PalyraError as error:
            await self._refuse(error, context, _UPLOAD, fingerprint)
        return wire.UploadArtifactResponse(digest_sha256=head.digest_sha256)

    async def DownloadArtifact(self, request: Any, context: Any) -> None:  # noqa: N802
        peer = await self.gate.admit(context, WORKERS, request.device_id, _DOWNLOAD)
        try:
            async for offset, data in self.artifacts.sending(
                str(peer.device_id), request.lease_id, request.fence, request.digest_sha256, request.offset
            ):
                await context.write(wire.ArtifactChunk(offset=offset, data=data))
        except PalyraError as error:
            await self._refuse(error, context, _DOWNLOAD, peer.fingerprint)

    async def RenewCertificate(self, request: Any, context: Any) -> Any:  # noqa: N802
        renewed = await self.gate.renew_certificate(context, WORKERS, request, _RENEW)
        return wire.RenewCertificateResponse(**renewed)

    async def LeaveFleet(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer = await self.gate.admit(context, WORKERS, request.device_id, _LEAVE)
        try:
            actor = actor_of(peer.kind, peer.device_id)
            await self.leave(str(peer.device_id), reason=request.reason or "the worker left", actor=actor)
        except PalyraError as error:
            await abort_with(context, error)
        return wire.LeaveFleetResponse()

    async def _refuse(self, error: PalyraError, context: Any, method: str, fingerprint: str) -> None:
        """Refuse a call. A worker that asks for another's files is recorded."""
        if isinstance(error, WrongWorker | StaleFence):
            await self.gate.note(error, method, fingerprint)
        await abort_with(context, error)


async def _read_first(context: Any) -> Any:
    try:
        async with asyncio.timeout(limits.HELLO_SECONDS):
            first = await context.read()
    except TimeoutError:
        return None
    return None if first is grpc.aio.EOF else first


def _read_hello(first: Any) -> Hello:
    if not first.events or first.events[0].WhichOneof("event") != "hello":
        raise HelloFirst("the first message has no hello")
    hello = first.events[0].hello
    if hello.protocol_version != limits.PROTOCOL_VERSION:
        raise UnknownProtocol(f"protocol version {hello.protocol_version} is not known here")
    if len(hello.open_lease_ids) > limits.MAX_OPEN_LEASES_NAMED:
        raise TooMuchAtOnce(f"more than {limits.MAX_OPEN_LEASES_NAMED} open leases were named")
    return Hello(
        name=hello.display_name,
        boot_id=hello.boot_id[:64],
        slots=hello.slots,
        open_lease_ids=frozenset(hello.open_lease_ids),
    )
