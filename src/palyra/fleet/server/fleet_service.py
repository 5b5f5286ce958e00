"""The sessions of the workers connected to this daemon, and the index of workers for placement.

Commands go to the ledger, and its decisions are carried out here.
"""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import Denied
from palyra.fleet.domain import commands
from palyra.fleet.domain.commands import FleetDecision
from palyra.fleet.domain.lease import LeaseState, UnknownLease, WorkerLease
from palyra.fleet.domain.manager import ACTOR, due
from palyra.fleet.domain.placement import PlacementIndex
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.signed_statement import SignedStatement
from palyra.fleet.domain.worker import TRANSITIONS, StaleSession, WorkerLifecycleState, WorkerRecord, WorkerTransition
from palyra.fleet.limits import BEATS_GATHER_SHARE, NONCE_HEX_CHARS
from palyra.fleet.server import messages
from palyra.fleet.server.messages import CommandStream, DeviceKeys
from palyra.fleet.store.batching import CommandBatcher
from palyra.fleet.store.port import Beat, BeatAnswer, FleetLedger
from palyra.identity.device import DeviceKind, actor_of
from palyra.signing.p256 import P256Verifier


class WorkerQuarantined(Denied):
    code = "worker.quarantined"
    hint = "find out why with `palyra worker show`, then release it with `palyra worker release`"


_STALE: Final = "worker.stale_session"
_WHY_CUT: Final = {
    WorkerLifecycleState.QUARANTINED: WorkerQuarantined.code,
    WorkerLifecycleState.REMOVED: "worker.removed",
}


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    boot_id: str
    slots: int
    open_lease_ids: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class Session:
    """One connection of one worker. It counts until the ledger has a later one or none."""

    worker_id: str
    worker_name: str
    number: int
    stream: CommandStream
    key: P256Verifier
    # The leases that the worker named in its hello.
    named: frozenset[str]
    # Set when the other leases were offered again or taken back.
    caught_up: bool = False
    # The open leases that the worker has shown to have since.
    confirmed: frozenset[str] = frozenset()
    slots: int = -1
    refused: int = 0
    # The stream's count of sent messages at the last heartbeat: a higher one is an answer too.
    sent: int = 0

    @property
    def actor(self) -> str:
        return actor_of(DeviceKind.WORKER, self.worker_id)


class _Presented(msgspec.Struct, frozen=True):
    egress_id: str = ""


class LeaseObserver(Protocol):
    """The calls that wait for leases and for free places."""

    def on_granted(self, lease: WorkerLease, egress_id: str) -> None:
        """Handle a new lease. ``egress_id`` is the proxy of its worker, or empty."""

    def on_ended(self, lease: WorkerLease) -> None: ...

    def on_connected(self, session: Session, leases: Iterable[WorkerLease]) -> None:
        """Handle a worker that has attested itself on this connection and has these open leases."""

    def dispatch_waiting(self) -> None: ...


@dataclass(eq=False, kw_only=True)
class FleetSessions:
    ledger: FleetLedger
    policy: WorkerFleetPolicy
    clock: Clock
    instance: str
    keys: Callable[[], DeviceKeys]
    on_refused: Callable[[str], None] = lambda _code: None

    def __post_init__(self) -> None:
        self.index = PlacementIndex(self.policy)
        self.batcher = CommandBatcher(
            self.ledger,
            self._apply_decision,
            self._end_stale_sessions,
            beats_gather_seconds=self.policy.heartbeat_interval_ms / MS_PER_SECOND * BEATS_GATHER_SHARE,
        )
        self.watch: LeaseObserver | None = None
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, worker_id: str) -> Session | None:
        return self._sessions.get(worker_id)

    async def open(
        self, worker_id: str, hello: Hello, stream: CommandStream, key: P256Verifier
    ) -> tuple[Session, WorkerRecord]:
        """Open a session. Raise the ledger's refusal, or WorkerQuarantined if the hello caused a quarantine."""
        decision = await self.decide(
            commands.OpenSession(
                actor=actor_of(DeviceKind.WORKER, worker_id),
                worker_id=worker_id,
                name=hello.name,
                daemon=self.instance,
                boot_id=hello.boot_id,
                slots=hello.slots,
                nonce=new_nonce(),
                named=hello.open_lease_ids,
            )
        )
        record = decision.worker
        assert record is not None
        if not record.connected:
            raise WorkerQuarantined(f"the worker is {record.state.value}: {record.reason[:100]}", device=worker_id)
        present = self._sessions.get(worker_id)
        if present is not None and present.number > record.session:
            raise StaleSession("another connection of this worker took over", worker_id=worker_id)
        session = Session(worker_id, record.name, record.session, stream, key, hello.open_lease_ids)
        self._sessions[worker_id] = session
        for lease_id in sorted(hello.open_lease_ids & {*record.open_leases, *record.owes}):
            self._note_taken(worker_id, lease_id)
        return session, record

    async def close(self, session: Session) -> None:
        if self._sessions.get(session.worker_id) is not session:
            return
        del self._sessions[session.worker_id]
        self.index.forget(session.worker_id)
        end = commands.EndSession(actor=session.actor, worker_id=session.worker_id, session=session.number)
        await self.batcher.decide(end)

    async def attest(self, session: Session, signed: SignedStatement) -> FleetDecision:
        return await self.batcher.decide(
            commands.PresentAttestation(
                actor=session.actor,
                worker_id=session.worker_id,
                session=session.number,
                signed=signed,
                key=session.key,
                egress_keys=self._egress_keys(signed),
            )
        )

    def follow_attestation(self, session: Session, decision: FleetDecision) -> None:
        """Send leases and questions, after the answer to the attestation: the worker takes them only from then on."""
        if decision.refusal is not None or decision.worker is None:
            return
        if not session.caught_up and self.watch:
            session.caught_up = True
            if decision.worker.open_leases:
                self.watch.on_connected(session, self.ledger.leases(session.worker_id))
        for lease_id in decision.worker.owes:
            self._ask_for_cleanup(session, lease_id)

    def _ask_for_cleanup(self, session: Session, lease_id: str) -> None:
        """Ask about a lease that nothing shows the worker to have: its offer may have been lost."""
        try:
            lease = self.ledger.lease(lease_id)
        except UnknownLease:
            # The lease ended long ago and its nonce was deleted.
            return
        if not lease.taken_ms:
            session.stream.send(messages.ask_cleanup(lease))

    def confirm_lease(self, worker_id: str, lease: WorkerLease) -> None:
        """Record once that the worker has this lease. It contradicts a later disclaimer."""
        session = self._sessions.get(worker_id)
        if lease.taken_ms or (session is not None and lease.lease_id in session.confirmed):
            return
        self._note_taken(worker_id, lease.lease_id)
        if session is not None and lease.is_open:
            session.confirmed |= {lease.lease_id}

    def _note_taken(self, worker_id: str, lease_id: str) -> None:
        actor = actor_of(DeviceKind.WORKER, worker_id)
        self.batcher.submit(commands.NoteTaken(actor=actor, worker_id=worker_id, lease_id=lease_id))

    def _egress_keys(self, signed: SignedStatement) -> dict[str, P256Verifier]:
        """Return the key of the proxy that the statement names. The statement is verified later."""
        try:
            egress_id = msgspec.json.decode(signed.payload, type=_Presented).egress_id
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}
        key = self.keys().of_device(egress_id, DeviceKind.EGRESS) if egress_id else None
        return {} if key is None else {egress_id: key}

    def beat(self, session: Session, workspaces: int, slots: int) -> None:
        self.batcher.beat(Beat(worker_id=session.worker_id, session=session.number, workspaces=workspaces))
        if slots != session.slots:
            session.slots = slots
            self.batcher.submit(
                commands.ChangeSlots(
                    actor=session.actor, worker_id=session.worker_id, session=session.number, slots=slots
                )
            )

    def reset_workspace_count(self, session: Session) -> None:
        """Forget the worker's count of workspaces, because it reports the end of a lease."""
        self.batcher.reset_workspace_count(session.worker_id)

    async def decide(self, command: commands.FleetCommand) -> FleetDecision:
        """Decide a command. Raise its refusal."""
        decision = await self.batcher.decide(command)
        if decision.refusal is not None:
            raise decision.refusal
        return decision

    def end_session(self, worker_id: str, code: str) -> None:
        """End a worker's session, as its identity is not valid any more."""
        session = self._sessions.get(worker_id)
        if session is not None:
            session.stream.end(code, "")

    def end_all(self, code: str, message: str) -> None:
        for session in list(self._sessions.values()):
            session.stream.end(code, message)

    def announce(self, ca_bundle_pem: bytes) -> None:
        for session in self._sessions.values():
            session.stream.send(messages.announce_certificates(ca_bundle_pem))

    async def reap(self) -> int:
        """Decide everything that is due because time passed. Return the number of commands."""
        now_ms = self.clock.now_ms()
        await self.batcher.note_beats()
        found = due(self.ledger.candidates(now_ms), self.policy, now_ms, new_nonce)
        decided = [self.batcher.submit(command) for command in found]
        for future in decided:
            await future
        if self.watch is not None:
            self.watch.dispatch_waiting()
        return len(found)

    def _apply_decision(self, command: commands.FleetCommand, decision: FleetDecision) -> None:
        if decision.refusal is not None:
            self.on_refused(decision.refusal.code)
        if decision.worker is not None:
            self._follow_record(command, decision.worker)
        watch = self.watch
        for change in decision.leases:
            if change.was is None and watch is not None:
                watch.on_granted(change.lease, decision.worker.egress_id if decision.worker else "")
            elif change.was is change.lease.state:
                continue
            elif not change.lease.is_open and watch is not None:
                if (holder := self._sessions.get(change.lease.worker_id)) is not None:
                    holder.confirmed -= {change.lease.lease_id}
                watch.on_ended(change.lease)
            elif change.lease.state is LeaseState.CANCELLING:
                session = self._sessions.get(change.lease.worker_id)
                if session is not None:
                    session.stream.send(messages.cancel(change.lease))
        if watch is not None and (decision.worker_changed or decision.leases):
            watch.dispatch_waiting()

    def _follow_record(self, command: commands.FleetCommand, record: WorkerRecord) -> None:
        """Update the index, the stream and the challenge from the ledger's record."""
        session = self._sessions.get(record.worker_id)
        if session is None:
            return
        if not record.connected or record.session != session.number:
            self._cut(session, record)
            return
        self.index.put(record)
        if isinstance(command, commands.Challenge) and record.nonce:
            session.stream.send(messages.challenge(record.nonce, self.policy))

    def _cut(self, session: Session, record: WorkerRecord) -> None:
        del self._sessions[session.worker_id]
        self.index.forget(session.worker_id)
        code = _WHY_CUT.get(record.state, _STALE) if record.session == session.number else _STALE
        session.stream.end(code, record.reason)

    def _end_stale_sessions(self, answer: BeatAnswer) -> None:
        for beat in answer.stale:
            session = self._sessions.get(beat.worker_id)
            if session is not None and session.number == beat.session:
                del self._sessions[beat.worker_id]
                self.index.forget(beat.worker_id)
                session.stream.end(_STALE, "the worker was given up, or is connected elsewhere")
        for beat in answer.suspect:
            self.batcher.submit(
                commands.ReportWorkspaces(
                    actor=ACTOR, worker_id=beat.worker_id, session=beat.session, count=beat.workspaces
                )
            )


def is_challengeable(record: WorkerRecord) -> bool:
    return bool(record.nonce) and (record.state, WorkerTransition.ATTEST) in TRANSITIONS


def new_nonce() -> str:
    return secrets.token_hex(NONCE_HEX_CHARS // 2)
