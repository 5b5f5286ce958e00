"""What a connected worker says, event by event: verified, put to the ledger, and answered."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from palyra.errors import Denied, LimitExceeded, PalyraError
from palyra.signing.dsse import BadSignature
from palyra.workers import commands, daemon_messages, service_limits
from palyra.workers.artifact_desk import ArtifactDesk
from palyra.workers.disclaimer import LeaseDisclaimer, open_disclaimer
from palyra.workers.fleet_desk import FleetDesk, Session
from palyra.workers.lease import WorkerLease
from palyra.workers.lease_calls import LeaseCalls
from palyra.workers.output_tails import OutputTails
from palyra.workers.settled_result import SettledResult, read_settlement, require_of_lease
from palyra.workers.settlement import SettlementDisagrees, settlement_digest
from palyra.workers.signed_statement import MalformedStatement, SignedStatement

LEFT: Final = "worker.left"
# What only a worker that cannot be believed sends.
_LIES: Final = (SettlementDisagrees, BadSignature, MalformedStatement)


class TooManyRefusals(LimitExceeded):
    code = "worker.too_many_refusals"
    hint = "nearly everything that this worker says is refused: look at its own log"


class WorkerEvents:
    def __init__(self, desk: FleetDesk, calls: LeaseCalls, artifacts: ArtifactDesk, output: OutputTails) -> None:
        self._desk = desk
        self._calls = calls
        self._artifacts = artifacts
        self._output = output

    async def hear(self, session: Session, sequence: int, said: tuple[Any, ...]) -> str | None:
        """All of one message. What it takes the ledger to answer is asked together, and answered before the next."""
        asked: list[Coroutine[Any, Any, None]] = []
        beat: Any = None
        for event in said:
            match event.WhichOneof("event"):
                case "heartbeat":
                    beat = event.heartbeat
                    self._desk.beat(session, beat.workspaces, beat.slots)
                case "output":
                    self._print(session, event.output)
                case "accepted":
                    self._accept(session, event.accepted)
                case "attestation":
                    asked.append(self._attest(session, event.attestation))
                case "declined":
                    asked.append(self._decline(session, event.declined))
                case "disclaimer":
                    asked.append(self._disclaim(session, event.disclaimer))
                case "settlement":
                    self._desk.reports(session)
                    asked.append(self._settle(session, event.settlement))
                case "leaving":
                    return LEFT
        if beat is not None and not (asked and self._calls.busy):
            self._acknowledge(session, sequence, beat.slots)
        if len(asked) == 1:
            await asked[0]
        elif asked:
            await asyncio.gather(*asked)
        if session.refused > service_limits.MAX_REFUSED_MESSAGES:
            raise TooManyRefusals(f"{session.refused} messages of this connection were refused")
        return None

    def _acknowledge(self, session: Session, sequence: int, slots: int) -> None:
        """An answer to anything tells a worker that somebody is here. In busy times a heartbeat has one of its own only
        where nothing else was sent since the last, and for a worker that winds down and waits for what is kept."""
        line = session.line
        if line.sent == session.sent or not slots or not self._calls.busy:
            line.send(daemon_messages.heartbeat_ack(sequence))
        session.sent = line.sent

    async def _attest(self, session: Session, sent: Any) -> None:
        decision = await self._desk.attest(session, SignedStatement(sent.payload, sent.signature))
        if decision.refusal is not None:
            session.refused += 1
        next_ms = self._desk.policy.challenge_after_ms()
        session.line.send(daemon_messages.attestation_answer(decision.refusal, next_ms))
        self._desk.attested(session, decision)

    async def _decline(self, session: Session, sent: Any) -> None:
        decision = await self._desk.batcher.decide(
            commands.DeclineLease(
                actor=session.actor,
                worker_id=session.worker_id,
                lease_id=sent.lease_id[:64],
                session=session.number,
                fence=sent.fence,
                reason=sent.reason,
            )
        )
        if decision.refusal is not None:
            session.refused += 1

    async def _disclaim(self, session: Session, sent: Any) -> None:
        statement: LeaseDisclaimer | None = None
        lie: PalyraError | None = None
        try:
            signed = SignedStatement(sent.statement.payload, sent.statement.signature)
            statement = open_disclaimer(signed, session.key)
        except _LIES as error:
            lie = error
        lease_id = sent.lease_id[:64]
        decision = await self._desk.batcher.decide(
            commands.DisclaimLease(
                actor=session.actor,
                worker_id=session.worker_id,
                lease_id=lease_id,
                session=session.number,
                statement=statement,
                refusal=lie,
            )
        )
        if decision.refusal is not None:
            session.refused += 1
        session.line.send(daemon_messages.settlement_answer(lease_id, decision.refusal))

    async def _settle(self, session: Session, sent: Any) -> None:
        lease_id = sent.lease_id[:64]
        signed = SignedStatement(sent.statement.payload, sent.statement.signature)
        refusal: PalyraError | None = None
        try:
            settled: SettledResult | None = read_settlement(
                signed, sent.result_json, sent.attestation_json, sent.error_json, session.key
            )
            assert settled is not None
            lease = self._calls.lease_of(lease_id)
            if lease.worker_id == session.worker_id:
                require_of_lease(settled, lease)
                if settled.statement.artifacts and self._desk.ledger.lease(lease_id).is_open:
                    self._desk.has(session.worker_id, lease)
                    await self._artifacts.require_all(lease, settled.statement.artifacts)
                self._calls.bring(lease_id, settled)
        except _LIES as lie:
            settled, refusal = None, lie
        except PalyraError as error:
            # Something is missing; the worker can say it again, or otherwise.
            session.refused += 1
            session.line.send(daemon_messages.settlement_answer(lease_id, error))
            return
        try:
            decision = await self._desk.batcher.decide(
                commands.SettleLease(
                    actor=session.actor,
                    worker_id=session.worker_id,
                    lease_id=lease_id,
                    session=session.number,
                    statement=None if settled is None else settled.statement,
                    digest=settlement_digest(signed),
                    refusal=refusal,
                )
            )
        finally:
            self._calls.drop(lease_id)
        answer = daemon_messages.settlement_answer(lease_id, decision.refusal)
        if decision.refusal is not None:
            session.refused += 1
        elif self._calls.busy:
            # The worker only forgets the lease over it, and has been told so with its next lease or heartbeat.
            session.line.send_along(answer)
            return
        session.line.send(answer)

    def _held(self, session: Session, sent: Any) -> WorkerLease:
        """The lease of which this worker speaks under its fencing number. Whoever does that has it."""
        lease = self._calls.lease_of(sent.lease_id[:64])
        if lease.worker_id != session.worker_id or lease.fence != sent.fence:
            raise Denied("a lease that this worker never held")
        self._desk.has(session.worker_id, lease)
        return lease

    def _accept(self, session: Session, sent: Any) -> None:
        try:
            self._held(session, sent)
        except PalyraError:
            session.refused += 1

    def _print(self, session: Session, sent: Any) -> None:
        try:
            lease = self._held(session, sent)
            if not lease.is_open:
                raise Denied("output of a lease that is over")
            self._output.add(lease.lease_id, sent.stream, sent.offset, sent.data)
        except PalyraError:
            session.refused += 1
