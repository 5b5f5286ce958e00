"""One connection of the worker: hello, challenge, attestation, then heartbeats and the renewal of the certificate.

Messages about leases go to the agent. A connection ends once, for one reason, and its tasks end with it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.backoff import Backoff
from palyra.devicelink.agent.channel import wait_for_renewal
from palyra.devicelink.agent.identity import HeldIdentity
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.agent.facts import WorkerFacts, make_attestation
from palyra.fleet.agent.link import LinkLost, LossKind, WorkerLink, to_wire
from palyra.fleet.agent.ports import EgressOfLease, WorkerObserver
from palyra.fleet.domain.signed_statement import sign_statement
from palyra.wire.worker.v1 import worker_pb2 as wire


class LeaseSide(Protocol):
    """The leases, which outlive connections."""

    def counts(self) -> dict[str, int]:
        """Return the fields of a heartbeat: ``running``, ``workspaces`` and ``slots``."""

    def name_open(self) -> tuple[str, ...]: ...

    def on_welcome(self, welcome: Any) -> None: ...

    def on_attested(self, link: WorkerLink) -> None:
        """From now on the daemon takes messages about leases."""

    def on_message(self, command: Any) -> None: ...


class SessionEnd(msgspec.Struct, frozen=True):
    """``kind`` is None if the connection is to be replaced at once. ``attested``: the daemon took its attestation."""

    kind: LossKind | None
    why: str
    attested: bool


@dataclass(eq=False)
class Session:
    """Made for one connection; used once."""

    address: str
    _: KW_ONLY
    identity: HeldIdentity
    facts: WorkerFacts
    egress: EgressOfLease | None
    leases: LeaseSide
    observer: WorkerObserver
    clock: Clock
    draw: Callable[[], float]

    def __post_init__(self) -> None:
        self.link = WorkerLink(self.address, self.identity.credentials(), self.identity.device_id)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._renew_now = asyncio.Event()
        self._end: asyncio.Future[SessionEnd] = asyncio.get_running_loop().create_future()
        self._attested = False
        self._received_at = self._beat_at = self.clock.monotonic()

    async def run(self) -> SessionEnd:
        self.link.send(
            hello=wire.Hello(
                protocol_version=limits.PROTOCOL_VERSION,
                display_name=self.identity.name,
                platform=self.facts.platform,
                software_version=self.facts.software_version,
                boot_id=self.facts.boot_id,
                slots=self.leases.counts()["slots"],
                open_lease_ids=self.leases.name_open(),
            )
        )
        self._begin(self._stream())
        try:
            return await self._end
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.link.close()

    def send_heartbeat(self) -> None:
        """Send a heartbeat with the waiting messages. The next regular one follows an interval later."""
        self._beat_at = self.clock.monotonic()
        self.link.send(heartbeat=wire.Heartbeat(**self.leases.counts()))

    async def _stream(self) -> None:
        try:
            await self.link.stream(self._on_message)
        except LinkLost as lost:
            self._give_up(lost.kind, lost.why)

    def _on_message(self, command: Any) -> None:
        self._received_at = self.clock.monotonic()
        match command.WhichOneof("command"):
            case "welcome":
                welcome = command.welcome
                self.leases.on_welcome(welcome)
                self._begin(self.identity.trust(welcome.ca_bundle_pem.decode("ascii", "replace")))
                self._begin(self._beat(welcome.heartbeat_interval_ms))
                self._begin(self._renew_in_time())
            case "challenge":
                self._begin(self._attest(command.challenge.nonce))
            case "attestation_answer":
                self._on_attestation_answer(command.attestation_answer.code, command.attestation_answer.message)
            case "certificate_news":
                news = command.certificate_news
                self._begin(self.identity.trust(news.ca_bundle_pem.decode("ascii", "replace")))
                if news.renew_now:
                    self._renew_now.set()
            case "goodbye":
                self.observer.say(f"the daemon says goodbye: {command.goodbye.code[:64]}")
            case "heartbeat_ack":
                pass
            case _:
                self.leases.on_message(command)

    async def _attest(self, nonce: str) -> None:
        worker_id, egress = self.identity.device_id, None
        if self.egress is not None:
            try:
                egress = await self.egress.binding(worker_id, nonce)
            except PalyraError as error:
                # The fleet's policy decides whether an attestation without a binding is enough.
                self.observer.say(f"the egress proxy gave no binding: {error.message}")
        attestation = make_attestation(self.facts, worker_id, nonce, self.clock.now_ms(), egress)
        self.link.send(attestation=to_wire(sign_statement(attestation, self.identity.key())))

    def _on_attestation_answer(self, code: str, message: str) -> None:
        if code:
            self.observer.say(f"the daemon did not accept the attestation: {code}: {message}")
            self._give_up(LossKind.TURNED_AWAY, f"{code}: {message}")
            return
        if not self._attested:
            self.observer.say("connected and attested")
        self._attested = True
        self.leases.on_attested(self.link)

    async def _beat(self, interval_ms: int) -> None:
        interval = max(interval_ms, limits.SHORTEST_HEARTBEAT_MS) / MS_PER_SECOND
        self.send_heartbeat()
        while True:
            await asyncio.sleep(max(0.0, self._beat_at + interval - self.clock.monotonic()))
            now = self.clock.monotonic()
            if now - self._received_at > limits.SILENT_INTERVALS * interval:
                self._give_up(LossKind.UNREACHABLE, "no heartbeat was answered")
            if now - self._beat_at >= interval:
                self.send_heartbeat()

    async def _renew_in_time(self) -> None:
        """Renew the certificate, then replace the link. Running leases go on and are reported on the new link."""
        backoff = Backoff()
        while True:
            await wait_for_renewal(self.identity.renew_at_ms, self._renew_now, self.clock)
            try:
                csr = await self.identity.request_renewal()
                await self.identity.take_renewal(await self.link.renew(csr, self.identity.generation))
            except (LinkLost, PalyraError) as error:
                self.observer.say(f"the certificate could not be renewed: {error}")
                backoff = backoff.failed()
                await asyncio.sleep(backoff.delay_ms(self.draw()) / MS_PER_SECOND)
                continue
            self._give_up(None, "a new certificate")
            return

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A fault on this side ends the connection; the next one starts afresh.
            self._give_up(LossKind.UNREACHABLE, f"{type(error).__name__}: {error}"[:200])

    def _give_up(self, kind: LossKind | None, why: str) -> None:
        if not self._end.done():
            self._end.set_result(SessionEnd(kind, why, self._attested))
