"""One connection of the worker: hello, challenge, attestation; then heartbeats, and a new certificate in time.

What is heard about leases is passed on. A connection ends once, for one reason, and what was begun on it ends with it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.backoff import Backoff
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.agent import link as wire_values
from palyra.fleet.agent import messages as said
from palyra.fleet.agent.attesting import WorkerFacts, attestation_for
from palyra.fleet.agent.link import LinkLost, LossKind, WorkerLink
from palyra.fleet.agent.messages import EgressOfLease, Tells, WorkerIdentity
from palyra.fleet.domain.attestation import sign_attestation
from palyra.wire.worker.v1 import worker_pb2 as wire


class LeaseSide(Protocol):
    """The leases, which outlive connections."""

    @property
    def slots(self) -> int: ...

    @property
    def running(self) -> int: ...

    @property
    def workspaces(self) -> int: ...

    def name_open(self) -> tuple[str, ...]:
        """The ids of those that are here, for a hello."""

    def welcomed(self, welcome: said.Welcomed) -> None: ...

    def attested(self, link: WorkerLink) -> None:
        """From now on the daemon listens."""

    def heard(self, heard: said.Heard) -> None: ...


class SessionEnd(msgspec.Struct, frozen=True):
    """``kind`` is None where the connection is to be replaced at once. ``of_use``: it got as far as its attestation."""

    kind: LossKind | None
    why: str
    of_use: bool


class Session:
    """Made for one connection; used once."""

    def __init__(
        self,
        address: str,
        *,
        identity: WorkerIdentity,
        facts: WorkerFacts,
        egress: EgressOfLease | None,
        leases: LeaseSide,
        tells: Tells,
        clock: Clock,
        draw: Callable[[], float],
    ) -> None:
        self._identity = identity
        self._facts = facts
        self._egress = egress
        self._leases = leases
        self._tells = tells
        self._clock = clock
        self._draw = draw
        self.link = WorkerLink(address, identity.credentials(), identity.worker_id)
        self._beside: set[asyncio.Task[Any]] = set()
        self._renew_now = asyncio.Event()
        self._over = asyncio.Event()
        self._end = SessionEnd(LossKind.UNREACHABLE, "", False)
        self._of_use = False
        self._heard_at = self._beat_at = clock.monotonic()

    async def run(self) -> SessionEnd:
        self.link.send(
            hello=wire.Hello(
                protocol_version=limits.PROTOCOL_VERSION,
                display_name=self._identity.name,
                platform=self._facts.platform,
                software_version=self._facts.software_version,
                boot_id=self._facts.boot_id,
                slots=self._leases.slots,
                open_lease_ids=self._leases.name_open(),
            )
        )
        self._begin(self._stream())
        try:
            await self._over.wait()
            return self._end
        finally:
            for task in self._beside:
                task.cancel()
            await asyncio.gather(*self._beside, return_exceptions=True)
            await self.link.close()

    def send_heartbeat(self) -> None:
        """Also beside other messages, into which it goes: the next one of its own is an interval away from it."""
        self._beat_at = self._clock.monotonic()
        leases = self._leases
        self.link.send(
            heartbeat=wire.Heartbeat(running=leases.running, workspaces=leases.workspaces, slots=leases.slots)
        )

    async def _stream(self) -> None:
        try:
            await self.link.stream(self._hear)
        except LinkLost as lost:
            self._give_up(lost.kind, lost.why)

    def _hear(self, heard: said.Heard) -> None:
        self._heard_at = self._clock.monotonic()
        match heard:
            case said.Welcomed():
                self._leases.welcomed(heard)
                self._begin(self._identity.trust(heard.ca_bundle_pem))
                self._begin(self._beat(heard.heartbeat_interval_ms))
                self._begin(self._renew_in_time())
            case said.Challenged(nonce):
                self._begin(self._attest(nonce))
            case said.AttestationAnswered(code, message):
                self._attestation_answered(code, message)
            case said.AuthoritiesChanged(bundle, renew_now):
                self._begin(self._identity.trust(bundle))
                if renew_now:
                    self._renew_now.set()
            case said.Dismissed(code):
                self._tells.say(f"the daemon says goodbye: {code}")
            case said.Acknowledged():
                pass
            case _:
                self._leases.heard(heard)

    async def _attest(self, nonce: str) -> None:
        worker_id, egress = self._identity.worker_id, None
        if self._egress is not None:
            try:
                egress = await self._egress.binding(worker_id, nonce)
            except PalyraError as error:
                # Said without it: whether that will do is the fleet's to decide.
                self._tells.say(f"the egress proxy gave no binding: {error.message}")
        attestation = attestation_for(self._facts, worker_id, nonce, self._clock.now_ms(), egress)
        self.link.send(attestation=wire_values.signed(sign_attestation(attestation, self._identity.key())))

    def _attestation_answered(self, code: str, message: str) -> None:
        if code:
            self._tells.say(f"the daemon did not accept the attestation: {code}: {message}")
            self._give_up(LossKind.TURNED_AWAY, f"{code}: {message}")
            return
        if not self._of_use:
            self._tells.say("connected and attested")
        self._of_use = True
        self._leases.attested(self.link)

    async def _beat(self, interval_ms: int) -> None:
        interval = max(interval_ms, limits.SHORTEST_HEARTBEAT_MS) / MS_PER_SECOND
        self.send_heartbeat()
        while True:
            await asyncio.sleep(max(0.0, self._beat_at + interval - self._clock.monotonic()))
            now = self._clock.monotonic()
            if now - self._heard_at > limits.SILENT_INTERVALS * interval:
                self._give_up(LossKind.UNREACHABLE, "no heartbeat was answered")
            if now - self._beat_at >= interval:
                self.send_heartbeat()

    async def _renew_in_time(self) -> None:
        """The link is replaced by one with the new certificate: what runs goes on, and is told of there."""
        backoff = Backoff()
        while True:
            due = max(0, self._identity.renew_at_ms - self._clock.now_ms()) + backoff.delay_ms(self._draw())
            try:
                async with asyncio.timeout(due / MS_PER_SECOND):
                    await self._renew_now.wait()
            except TimeoutError:
                pass
            try:
                csr = await self._identity.request_renewal()
                await self._identity.take_renewal(await self.link.renew(csr, self._identity.generation))
            except (LinkLost, PalyraError) as error:
                self._tells.say(f"the certificate could not be renewed: {error}")
                backoff = backoff.failed()
                self._renew_now.clear()
                continue
            self._give_up(None, "a new certificate")
            return

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A fault of this side ends the connection; the next one begins anew.
            self._give_up(LossKind.UNREACHABLE, f"{type(error).__name__}: {error}"[:200])

    def _give_up(self, kind: LossKind | None, why: str) -> None:
        if not self._over.is_set():
            self._end = SessionEnd(kind, why, self._of_use)
            self._over.set()
