"""The worker's agent: stays connected, takes leases, and tells of each until the daemon has answered.

``LeaseMachine`` decides about leases; the agent carries out its commands. Leases outlive connections: their ends are
reported on the next connection.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.backoff import Backoff
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.agent import lease_machine
from palyra.fleet.agent import link as wire_values
from palyra.fleet.agent import messages as said
from palyra.fleet.agent.attesting import WorkerFacts
from palyra.fleet.agent.lease import Interrupted, LeaseNote, LeaseOffer, WorkerCertificateEnded, WorkerRefused
from palyra.fleet.agent.lease_machine import LeaseMachine, LeaseStage
from palyra.fleet.agent.lease_runner import LeaseRunner
from palyra.fleet.agent.link import LossKind, WorkerLink
from palyra.fleet.agent.messages import EgressOfLease, LeasedCalls, Tells, WorkerIdentity
from palyra.fleet.agent.note_folder import NoteFolder
from palyra.fleet.agent.scratch import ScratchFolder
from palyra.fleet.agent.session import Session
from palyra.fleet.domain.lease import LeaseId
from palyra.fleet.domain.settlement import LeaseDisclaimer, ResultTooLarge
from palyra.fleet.limits import MAX_REASON_CHARS, OUTPUT_CHUNK_BYTES
from palyra.wire.worker.v1 import worker_pb2 as wire

# Output of one lease as it comes, in pieces, each with where it begins: for people who watch.

_STREAMS: Final = {1: wire.OUTPUT_STREAM_STDOUT, 2: wire.OUTPUT_STREAM_STDERR}


class Shows(Protocol):
    def show(self, **event: Any) -> None: ...


class ShownOutput:
    """``link`` is the connection of the moment; what comes while there is none is not shown to anybody."""

    def __init__(self, offer: LeaseOffer, link: Callable[[], Shows | None]) -> None:
        self._offer = offer
        self._link = link
        self._offsets = dict.fromkeys(_STREAMS, 0)

    def __call__(self, stream: int, data: bytes) -> None:
        for start in range(0, len(data), OUTPUT_CHUNK_BYTES):
            piece = data[start : start + OUTPUT_CHUNK_BYTES]
            if (link := self._link()) is not None:
                link.show(
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
    """``code`` names the error, or is empty where it was asked to stop."""

    code: str
    message: str


class WorkerAgent:
    def __init__(
        self,
        identity: WorkerIdentity,
        *,
        facts: WorkerFacts,
        calls: LeasedCalls,
        scratches: ScratchFolder,
        notes: NoteFolder,
        egress: EgressOfLease | None,
        tells: Tells,
        clock: Clock,
        draw: Callable[[], float],
    ) -> None:
        self._identity = identity
        self._facts = facts
        self._calls = calls
        self._scratches = scratches
        self._notes = notes
        self._egress = egress
        self._tells = tells
        self._clock = clock
        self._draw = draw
        self._runner = LeaseRunner(
            scratches=scratches, calls=calls, clock=clock, connected=self._connected, proof_of=self._proof_line
        )
        self._book = LeaseMachine(facts.slots, require=calls.require_offered)
        # Leases that have ended, until the daemon has answered.
        self._ended: dict[str, LeaseNote] = {}
        self._session: Session | None = None
        # The connection on which the daemon listens.
        self._link: WorkerLink | None = None
        # Who waits for something to be so, until it is.
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._stopping = asyncio.Event()
        self._grace_ms = 0
        # The number of the present connection.
        self._session_number = 0
        self._tasks: asyncio.TaskGroup

    def stop(self) -> None:
        """In order: no new lease, running ones end or are ended, all are told of, then the farewell."""
        self._stopping.set()

    async def run(self) -> End:
        """Until it was stopped and its leases are told of, or until the daemon does not know it any more."""
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
            self._carry_out(self._book.stop_all("the worker ends"))
            await self._until(lambda: not self._book.running)
            return connecting.result()

    async def _recover(self) -> None:
        """What an earlier life left: its leases are ended, their traces removed, and everything else too."""
        notes = await asyncio.to_thread(self._notes.load)
        for lease_id in self._notes.unreadable:
            self._tells.say(f"the note of lease {lease_id} cannot be read: nothing can be told of it")
        for note in notes:
            if note.end is None:
                self._tells.say(f"lease {note.lease_id} was interrupted")
                error = Interrupted("the worker stopped while it worked on this call")
                note = await self._runner.unfinished(note, error)
                await asyncio.to_thread(self._notes.write, note)
            self._ended[note.lease_id] = note
        for name in await asyncio.to_thread(self._scratches.names):
            await asyncio.to_thread(self._scratches.remove, name)
        self._book = LeaseMachine(self._facts.slots, self._ended.values(), require=self._calls.require_offered)

    async def _stay_connected(self) -> End:
        backoff, refusals, tries = Backoff(), 0, 0
        while True:
            if self._clock.now_ms() >= self._identity.not_after_ms:
                expired = WorkerCertificateEnded("this worker's certificate has ended")
                return End(expired.code, expired.message)
            servers = self._identity.servers
            end = await self._connect(servers[tries % len(servers)])
            tries += 1
            if end.kind is None:
                continue
            self._tells.say(f"no connection: {end.why}")
            refusals = refusals + 1 if end.kind is LossKind.REFUSED else 0
            if refusals >= limits.MAX_REFUSALS:
                return End(WorkerRefused.code, f"the daemon does not know this worker: {end.why}")
            backoff = Backoff().failed() if end.of_use else backoff.failed()
            await asyncio.sleep(backoff.delay_ms(self._draw()) / MS_PER_SECOND)

    async def _connect(self, address: str) -> Any:
        self._session = Session(
            address,
            identity=self._identity,
            facts=self._facts,
            egress=self._egress,
            leases=self,
            tells=self._tells,
            clock=self._clock,
            draw=self._draw,
        )
        end = None
        try:
            end = await self._session.run()
            return end
        finally:
            self._session = self._link = None
            self._book.disconnected()
            self._tells.state("offline", why="" if end is None else end.why)
            self._note_change()

    @property
    def slots(self) -> int:
        return self._book.slots

    @property
    def running(self) -> int:
        return self._book.running

    @property
    def workspaces(self) -> int:
        return self._scratches.count()

    @property
    def open_ids(self) -> tuple[str, ...]:
        return self._book.open_ids

    def name_open(self) -> tuple[str, ...]:
        return self._book.name_open()

    def welcomed(self, welcome: said.Welcomed) -> None:
        self._grace_ms = welcome.settle_grace_ms
        self._session_number = welcome.session
        for lease_id in welcome.void_lease_ids:
            self._carry_out(self._book.stop(lease_id, "the daemon gave the lease up"))

    def attested(self, link: WorkerLink) -> None:
        self._link = link
        self._tells.state("online", worker_id=self._identity.worker_id)
        self._carry_out(self._book.accepted_attestation())
        self._note_change()

    def heard(self, heard: said.Heard) -> None:
        match heard:
            case said.Offered(offer):
                self._carry_out(self._book.offered(offer))
            case said.Unreadable(lease_id, fence, refusal):
                self._decline(lease_id, fence, refusal)
            case said.Cancelled(lease_id, reason):
                self._carry_out(self._book.stop(lease_id, reason))
            case said.Answered(lease_id, code, message):
                if code:
                    self._tells.say(f"the daemon's answer on lease {lease_id}: {code}: {message}")
                self._carry_out(self._book.answered(lease_id, code, message))
            case said.Owed():
                self._owed(heard)

    def _carry_out(self, commands: Iterable[lease_machine.Command]) -> None:
        for command in commands:
            match command:
                case lease_machine.Accept(offer):
                    self._begin(self._live(offer), f"lease {offer.lease_id}")
                case lease_machine.Decline(lease_id, fence, refusal):
                    self._decline(lease_id, fence, refusal)
                case lease_machine.Stop(lease_id, reason):
                    self._tells.say(f"lease {lease_id} is stopped: {reason}")
                    self._runner.stop(lease_id)
                case lease_machine.Tell(lease_id):
                    self._tell(lease_id)
                case lease_machine.Restate(lease_id, code, message):
                    self._restate(lease_id, code, message)
                case lease_machine.Disclaim(owed):
                    self._begin(self._disclaim(owed), f"look for {owed.lease_id}")
                case lease_machine.Forget(lease_id):
                    self._ended.pop(lease_id, None)
                    self._notes.forget(lease_id)
        self._note_change()

    async def _live(self, offer: LeaseOffer) -> None:
        """One lease: noted, run, noted as ended."""
        lease_id = offer.lease_id
        note = LeaseNote.of(offer, self._clock.now_ms())
        try:
            await asyncio.to_thread(self._notes.write, note)
        except PalyraError as error:
            await self._not_begun(note, error)
            return
        stopped = self._book.stages[lease_id] is LeaseStage.STOPPING
        sink = ShownOutput(offer, lambda: self._link)
        end = await self._runner.run(offer, grace_ms=self._grace_ms, sink=sink, stopped=stopped)
        note = note.ended(end)
        try:
            await asyncio.to_thread(self._notes.write, note)
        except PalyraError as error:
            # It is told all the same; after a crash it would be told as interrupted.
            self._tells.say(f"the end of lease {lease_id} could not be noted: {error.message}")
        self._ended[lease_id] = note
        self._carry_out(self._book.ended(lease_id))

    async def _not_begun(self, note: LeaseNote, error: PalyraError) -> None:
        """A lease that could not be noted. Where a hello named it meanwhile, its end is told as that of any other."""
        if self._book.may_decline(note.lease_id):
            self._book.dropped(note.lease_id, error)
            self._decline(note.lease_id, note.fence, error)
            return
        self._ended[note.lease_id] = await self._runner.unfinished(note, error)
        self._carry_out(self._book.ended(note.lease_id))

    def _decline(self, lease_id: str, fence: int, refusal: PalyraError) -> None:
        reason = f"{refusal.code}: {refusal.message}"[:MAX_REASON_CHARS]
        self._tells.say(f"lease {lease_id[:64]} is declined: {reason}")
        if self._link is not None:
            self._link.send(declined=wire.LeaseDeclined(lease_id=lease_id, fence=fence, reason=reason))

    def _owed(self, owed: said.Owed) -> None:
        try:
            LeaseId.parse(owed.lease_id)
        except PalyraError:
            self._tells.say("the daemon asks for a lease by what is no id")
            return
        self._carry_out(self._book.owed(owed))

    async def _disclaim(self, owed: said.Owed) -> None:
        """On the connection on which it was asked, or not at all: the next one is asked again."""
        link, session = self._link, self._session_number
        proof = await self._runner.look_for(owed.lease_id, owed.fence, owed.nonce)
        if link is None or link is not self._link:
            return
        disclaimer = LeaseDisclaimer(
            worker_id=self._identity.worker_id, boot_id=self._facts.boot_id, session=session, cleanup=proof
        )
        self._tells.say(f"lease {owed.lease_id} was never begun here")
        link.send_event(wire_values.disclaimer(disclaimer, self._identity.key()))

    def _tell(self, lease_id: str) -> None:
        if self._link is None:
            return
        event = self._settlement(lease_id)
        if event.ByteSize() > limits.MAX_SETTLEMENT_BYTES:
            # It would end the connection, and the next one too.
            self._restate(lease_id, ResultTooLarge.code, "the settlement is larger than a message may be")
            event = self._settlement(lease_id)
        self._link.send_event(event)
        if self._session is not None:
            self._session.send_heartbeat()

    def _settlement(self, lease_id: str) -> wire.WorkerEvent:
        return wire_values.settlement(self._ended[lease_id], self._identity.worker_id, self._identity.key())

    def _restate(self, lease_id: str, code: str, message: str) -> None:
        note = self._ended[lease_id]
        assert note.end is not None
        error = {"code": code, "message": f"the daemon did not take the result: {message}", "hint": ""}
        note = msgspec.structs.replace(note, end=note.end.as_failure(error), restated=True)
        self._ended[lease_id] = note
        self._begin(asyncio.to_thread(self._notes.write, note), f"note {lease_id}")

    async def _connected(self) -> WorkerLink:
        """Waits for a connection on which the daemon listens."""
        while self._link is None:
            await self._until(lambda: self._link is not None)
        return self._link

    def _proof_line(self, offer: LeaseOffer) -> dict[str, Any]:
        return {
            "layer": "worker",
            "asked": f"lease {offer.lease_id}, fence {offer.fence}",
            "got": f"worker {self._identity.worker_id}, build {self._facts.build_digest_sha256 or 'unknown'}",
        }

    async def _wind_down(self) -> None:
        self._book.wind_down()
        if self._session is not None and self._link is not None:
            self._session.send_heartbeat()
        self._tells.state("winding_down")
        if not await _within(self._until(lambda: not self._book.running), limits.WIND_DOWN_SECONDS):
            self._carry_out(self._book.stop_all("the worker was stopped"))
            await self._until(lambda: not self._book.running)
        # Without a connection there is nobody to tell: the notes stay for the next life.
        await _within(self._until(lambda: not self._book.open_ids or self._link is None), limits.FAREWELL_SECONDS)
        if self._link is not None:
            self._link.send(leaving=wire.Leaving(reason="the worker was stopped"))
            self._link.say_no_more()
            await _within(self._until(lambda: self._link is None), limits.FAREWELL_SECONDS)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.create_task(work, name=name)

    def _note_change(self) -> None:
        for true, waiter in self._waiting:
            if not waiter.done() and true():
                waiter.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    async def _until(self, true: Callable[[], bool]) -> None:
        if not true():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((true, waiter))
            await waiter


async def _within(work: Coroutine[Any, Any, None], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
