"""The worker's agent: stays connected, runs leases, and reports the end of each until the daemon has answered.

``LeaseMachine`` decides about leases; the agent carries out its commands. Leases outlive connections: their ends are
reported on the next connection.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.backoff import Backoff
from palyra.devicelink.agent.identity import HeldIdentity
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.agent import lease_machine
from palyra.fleet.agent import link as wire_values
from palyra.fleet.agent.facts import WorkerFacts
from palyra.fleet.agent.lease import (
    Interrupted,
    LeaseNote,
    LeaseOffer,
    OwedLease,
    WorkerCertificateEnded,
    WorkerRefused,
)
from palyra.fleet.agent.lease_machine import LeaseMachine, LeaseStage
from palyra.fleet.agent.lease_runner import LeaseRunner
from palyra.fleet.agent.link import LossKind, WorkerLink
from palyra.fleet.agent.note_folder import NoteFolder
from palyra.fleet.agent.ports import EgressOfLease, LeasedCalls, WorkerObserver
from palyra.fleet.agent.scratch import ScratchFolder
from palyra.fleet.agent.session import Session, SessionEnd
from palyra.fleet.domain.lease import LeaseId
from palyra.fleet.domain.settlement import LeaseDisclaimer, ResultTooLarge
from palyra.fleet.limits import MAX_REASON_CHARS, OUTPUT_CHUNK_BYTES
from palyra.wire.worker.v1 import worker_pb2 as wire

_STREAMS: Final = {1: wire.OUTPUT_STREAM_STDOUT, 2: wire.OUTPUT_STREAM_STDERR}


class OutputSender:
    """Sends a lease's output in pieces, each with its offset. Output without a connection is skipped."""

    def __init__(self, offer: LeaseOffer, link: Callable[[], WorkerLink | None]) -> None:
        self._offer = offer
        self._link = link
        self._offsets = dict.fromkeys(_STREAMS, 0)

    def __call__(self, stream: int, data: bytes) -> None:
        for start in range(0, len(data), OUTPUT_CHUNK_BYTES):
            piece = data[start : start + OUTPUT_CHUNK_BYTES]
            if (link := self._link()) is not None:
                link.send_unless_full(
                    output=wire.OutputChunk(
                        lease_id=self._offer.lease_id,
                        fence=self._offer.fence,
                        stream=_STREAMS[stream],
                        offset=self._offsets[stream],
                        data=piece,
                    )
                )
            self._offsets[stream] += len(piece)


class End(msgspec.Struct, frozen=True):
    """``code`` names the error; it is empty after an orderly stop."""

    code: str
    message: str


@dataclass(eq=False)
class WorkerAgent:
    identity: HeldIdentity
    _: KW_ONLY
    facts: WorkerFacts
    calls: LeasedCalls
    scratches: ScratchFolder
    notes: NoteFolder
    egress: EgressOfLease | None
    observer: WorkerObserver
    clock: Clock
    draw: Callable[[], float]

    def __post_init__(self) -> None:
        self._runner = LeaseRunner(
            scratches=self.scratches,
            calls=self.calls,
            clock=self.clock,
            connected=self._connected,
            proof_of=self._proof_line,
        )
        self._machine = LeaseMachine(self.facts.slots, require=self.calls.require_offered)
        # Leases that have ended, until the daemon has answered.
        self._ended: dict[str, LeaseNote] = {}
        self._session: Session | None = None
        # The connection that is attested; None while there is no such connection.
        self._link: WorkerLink | None = None
        # Set at the next change of leases or connection, and replaced.
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._grace_ms = 0
        # The number of the present connection.
        self._session_number = 0
        self._tasks: asyncio.TaskGroup

    def stop(self) -> None:
        """Stop in order: take no new lease, end the running ones, report them all, say goodbye."""
        self._stopping.set()

    async def run(self) -> End:
        """Run until the worker was stopped and has reported its leases, or until the daemon refuses it for good."""
        await self._recover()
        async with asyncio.TaskGroup() as self._tasks:
            connecting = self._tasks.create_task(self._stay_connected(), name="connection")
            stopping = self._tasks.create_task(self._stopping.wait(), name="stop")
            await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not connecting.done():
                await self._wind_down()
                connecting.cancel()
                return End("", "stopped")
            self._carry_out(self._machine.stop_all("the worker ends"))
            await self._until(lambda: not self._machine.running)
            return connecting.result()

    async def _recover(self) -> None:
        """End the leases of an earlier life and remove all scratch folders."""
        notes = await asyncio.to_thread(self.notes.load)
        for lease_id in self.notes.unreadable:
            self.observer.say(f"the note of lease {lease_id} cannot be read: its end is not reported")
        for note in notes:
            if note.end is None:
                self.observer.say(f"lease {note.lease_id} was interrupted")
                error = Interrupted("the worker stopped while it worked on this call")
                note = await self._runner.end_unfinished(note, error)
                await asyncio.to_thread(self.notes.write, note)
            self._ended[note.lease_id] = note
        for name in await asyncio.to_thread(self.scratches.names):
            await asyncio.to_thread(self.scratches.remove, name)
        self._machine = LeaseMachine(self.facts.slots, self._ended.values(), require=self.calls.require_offered)

    async def _stay_connected(self) -> End:
        backoff, refusals, tries = Backoff(), 0, 0
        while True:
            if self.clock.now_ms() >= self.identity.not_after_ms:
                expired = WorkerCertificateEnded("this worker's certificate has ended")
                return End(expired.code, expired.message)
            servers = self.identity.servers
            end = await self._connect(servers[tries % len(servers)])
            tries += 1
            if end.kind is None:
                continue
            self.observer.say(f"no connection: {end.why}")
            refusals = refusals + 1 if end.kind is LossKind.REFUSED else 0
            if refusals >= limits.MAX_REFUSALS:
                return End(WorkerRefused.code, f"the daemon does not know this worker: {end.why}")
            backoff = Backoff().failed() if end.attested else backoff.failed()
            await asyncio.sleep(backoff.delay_ms(self.draw()) / MS_PER_SECOND)

    async def _connect(self, address: str) -> SessionEnd:
        self._session = Session(
            address,
            identity=self.identity,
            facts=self.facts,
            egress=self.egress,
            leases=self,
            observer=self.observer,
            clock=self.clock,
            draw=self.draw,
        )
        end = None
        try:
            end = await self._session.run()
            return end
        finally:
            self._session = self._link = None
            self._machine.on_disconnect()
            self.observer.state("offline", why="" if end is None else end.why)
            self._note_change()

    def counts(self) -> dict[str, int]:
        machine = self._machine
        return {"running": machine.running, "workspaces": len(self.scratches.names()), "slots": machine.slots}

    def name_open(self) -> tuple[str, ...]:
        return self._machine.name_open()

    def on_welcome(self, welcome: Any) -> None:
        self._grace_ms = welcome.settle_grace_ms
        self._session_number = welcome.session
        for lease_id in welcome.void_lease_ids:
            self._carry_out(self._machine.stop(lease_id, "the daemon gave the lease up"))

    def on_attested(self, link: WorkerLink) -> None:
        self._link = link
        self.observer.state("online", worker_id=self.identity.device_id)
        self._carry_out(self._machine.on_attested())
        self._note_change()

    def on_message(self, command: Any) -> None:
        match command.WhichOneof("command"):
            case "lease":
                sent = command.lease
                try:
                    offer = wire_values.read_offer(sent)
                except PalyraError as refusal:
                    self._decline(sent.lease_id, sent.fence, refusal)
                else:
                    self._carry_out(self._machine.on_offer(offer))
            case "cancel":
                self._carry_out(self._machine.stop(command.cancel.lease_id, command.cancel.reason[:MAX_REASON_CHARS]))
            case "settlement_answer":
                answer = command.settlement_answer
                message = answer.message[:MAX_REASON_CHARS]
                if answer.code:
                    self.observer.say(f"the daemon's answer on lease {answer.lease_id}: {answer.code}: {message}")
                self._carry_out(self._machine.on_answer(answer.lease_id, answer.code, message))
            case "owed":
                self._on_owed(OwedLease(command.owed.lease_id, command.owed.fence, command.owed.nonce))

    def _carry_out(self, commands: Iterable[lease_machine.Command]) -> None:
        for command in commands:
            match command:
                case lease_machine.Accept(offer):
                    self._begin(self._run_lease(offer), f"lease {offer.lease_id}")
                case lease_machine.Decline(lease_id, fence, refusal):
                    self._decline(lease_id, fence, refusal)
                case lease_machine.Stop(lease_id, reason):
                    self.observer.say(f"lease {lease_id} is stopped: {reason}")
                    self._runner.stop(lease_id)
                case lease_machine.Report(lease_id):
                    self._report(lease_id)
                case lease_machine.Restate(lease_id, code, message):
                    self._restate(lease_id, code, message)
                case lease_machine.Disclaim(owed):
                    self._begin(self._disclaim(owed), f"look for {owed.lease_id}")
                case lease_machine.Forget(lease_id):
                    self._ended.pop(lease_id, None)
                    self.notes.forget(lease_id)
        self._note_change()

    async def _run_lease(self, offer: LeaseOffer) -> None:
        """Note a lease on disk, run it, and note its end."""
        lease_id = offer.lease_id
        note = LeaseNote.of(offer, self.clock.now_ms())
        try:
            await asyncio.to_thread(self.notes.write, note)
        except PalyraError as error:
            await self._drop(note, error)
            return
        stopped = self._machine.stages[lease_id] is LeaseStage.STOPPING
        sink = OutputSender(offer, lambda: self._link)
        end = await self._runner.run(offer, grace_ms=self._grace_ms, sink=sink, stopped=stopped)
        note = note.ended(end)
        try:
            await asyncio.to_thread(self.notes.write, note)
        except PalyraError as error:
            # The end is reported all the same. After a crash it would be reported as interrupted.
            self.observer.say(f"the end of lease {lease_id} could not be noted: {error.message}")
        self._ended[lease_id] = note
        self._carry_out(self._machine.on_end(lease_id))

    async def _drop(self, note: LeaseNote, error: PalyraError) -> None:
        """Decline a lease that could not be noted. If a hello has named it since, report its end instead."""
        if self._machine.may_decline(note.lease_id):
            self._machine.drop(note.lease_id, error)
            self._decline(note.lease_id, note.fence, error)
            self._note_change()
            return
        self._ended[note.lease_id] = await self._runner.end_unfinished(note, error)
        self._carry_out(self._machine.on_end(note.lease_id))

    def _decline(self, lease_id: str, fence: int, refusal: PalyraError) -> None:
        reason = f"{refusal.code}: {refusal.message}"[:MAX_REASON_CHARS]
        self.observer.say(f"lease {lease_id[:64]} is declined: {reason}")
        if self._link is not None:
            self._link.send(declined=wire.LeaseDeclined(lease_id=lease_id, fence=fence, reason=reason))

    def _on_owed(self, owed: OwedLease) -> None:
        try:
            LeaseId.parse(owed.lease_id)
        except PalyraError:
            self.observer.say("the daemon asks about a lease whose id is malformed")
            return
        self._carry_out(self._machine.on_owed(owed))

    async def _disclaim(self, owed: OwedLease) -> None:
        """Disclaim the lease on the connection that asked. On the next connection the daemon asks again."""
        link, session = self._link, self._session_number
        proof = await self._runner.prove_absent(owed)
        if link is None or link is not self._link:
            return
        disclaimer = LeaseDisclaimer(
            worker_id=self.identity.device_id, boot_id=self.facts.boot_id, session=session, cleanup=proof
        )
        self.observer.say(f"lease {owed.lease_id} was never begun here")
        link.send_event(wire_values.to_disclaimer_event(disclaimer, self.identity.key()))

    def _report(self, lease_id: str) -> None:
        if self._link is None:
            return
        event = self._settlement(lease_id)
        if event.ByteSize() > limits.MAX_SETTLEMENT_BYTES:
            # Such a message would end this connection and every later one.
            self._restate(lease_id, ResultTooLarge.code, "the settlement is larger than a message may be")
            event = self._settlement(lease_id)
        self._link.send_event(event)
        if self._session is not None:
            self._session.send_heartbeat()

    def _settlement(self, lease_id: str) -> wire.WorkerEvent:
        return wire_values.to_settlement_event(self._ended[lease_id], self.identity.device_id, self.identity.key())

    def _restate(self, lease_id: str, code: str, message: str) -> None:
        note = self._ended[lease_id]
        assert note.end is not None
        error = {"code": code, "message": f"the daemon did not take the result: {message}", "hint": ""}
        note = msgspec.structs.replace(note, end=note.end.as_failure(error), restated=True)
        self._ended[lease_id] = note
        self._begin(asyncio.to_thread(self.notes.write, note), f"note {lease_id}")

    async def _connected(self) -> WorkerLink:
        while self._link is None:
            await self._until(lambda: self._link is not None)
        return self._link

    def _proof_line(self, offer: LeaseOffer) -> dict[str, Any]:
        return {
            "layer": "worker",
            "asked": f"lease {offer.lease_id}, fence {offer.fence}",
            "got": f"worker {self.identity.device_id}, build {self.facts.build_digest_sha256 or 'unknown'}",
        }

    async def _wind_down(self) -> None:
        self._machine.wind_down()
        if self._session is not None and self._link is not None:
            self._session.send_heartbeat()
        self.observer.state("winding_down")
        if not await _within(self._until(lambda: not self._machine.running), limits.WIND_DOWN_SECONDS):
            self._carry_out(self._machine.stop_all("the worker was stopped"))
            await self._until(lambda: not self._machine.running)
        # Without a connection the ends cannot be reported: the notes stay for the next life.
        await _within(self._until(lambda: not self._machine.open_ids or self._link is None), limits.FAREWELL_SECONDS)
        if self._link is not None:
            self._link.send(leaving=wire.Leaving(reason="the worker was stopped"))
            self._link.finish_sending()
            await _within(self._until(lambda: self._link is None), limits.FAREWELL_SECONDS)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.create_task(work, name=name)

    def _note_change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()


async def _within(work: Coroutine[Any, Any, None], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
