"""A worker's agent beside a daemon's side that the test steers: real TLS and identities, the real rules over a ledger
in memory, and everything that was said written down."""

import asyncio
import hashlib
import random
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fakes.eventually import eventually
from fakes.memory_fleet import MemoryFleet
from fakes.node_server_harness import ByHand, MovedClock, NodeServerHarness
from palyra.canonical import canonical_json
from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.daemon.settings import Settings
from palyra.daemon.worker_agent import open_folder, settings_of_calls
from palyra.devicelink.agent.device_folder import DeviceRecord
from palyra.devicelink.agent.identity import HeldIdentity
from palyra.devicelink.server.listener import DeviceListener
from palyra.errors import PalyraError
from palyra.executors.worker.leased_calls import WorkerCalls
from palyra.fleet.agent.agent import End, WorkerAgent
from palyra.fleet.agent.facts import WorkerFacts
from palyra.fleet.agent.note_folder import NoteFolder
from palyra.fleet.agent.scratch import ScratchFolder
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import GrantId, LeaseId, WorkerApprovalGrant, WorkerLease
from palyra.fleet.domain.manager import WorkerFleetManager
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.settlement import (
    LeaseDisclaimer,
    LeaseSettlement,
    settlement_digest,
)
from palyra.fleet.domain.signed_statement import SignedStatement, open_statement
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.identity.device import DeviceKind
from palyra.sandbox.layers.workspace_scan import remove_tree
from palyra.secret import Secret
from palyra.signing.p256 import P256Verifier
from palyra.signing.tool_attestation import ToolAttestation, verify_attestation
from palyra.wire.worker.v1 import worker_pb2 as wire
from palyra.wire.worker.v1.worker_pb2_grpc import WorkerServiceServicer, add_WorkerServiceServicer_to_server

PATIENCE = 60.0
POLICY = WorkerFleetPolicy(
    require_egress_binding=False, heartbeat_interval_ms=200, heartbeat_timeout_ms=20_000, settle_grace_ms=20_000
)


class SettledReport(msgspec.Struct, frozen=True, kw_only=True):
    """One settlement as it came."""

    statement: LeaseSettlement
    attestation: ToolAttestation
    result: Any
    error: dict[str, Any] | None
    answer: str


class FakeFleet(WorkerServiceServicer):
    """``hold``: the code that settlements are answered with instead of the ledger's word, once for each."""

    def __init__(self, harness: NodeServerHarness, policy: WorkerFleetPolicy = POLICY) -> None:
        self.harness = harness
        self.policy = policy
        self.ledger = MemoryFleet(harness.clock, WorkerFleetManager(policy))
        self.artifacts: dict[str, bytes] = {}
        self.uploaded: list[str] = []
        self.reports: list[SettledReport] = []
        self.output: dict[str, bytes] = {}
        self.beats: list[Any] = []
        self.beats_with_reports = 0
        self.hellos: list[Any] = []
        self.declined: list[Any] = []
        self.disclaimed: list[tuple[LeaseDisclaimer, str]] = []
        self.attestation_answers: list[str] = []
        self.holding: list[str] = []
        self.deaf = False
        self.void: tuple[str, ...] = ()
        self.left: list[str] = []
        # What was wrong with the worker's messages. A stream that breaks would only look like a lost connection.
        self.failures: list[AssertionError] = []
        self.happened = asyncio.Event()
        self._down: asyncio.Queue[Any] = asyncio.Queue()
        self._cut = asyncio.Event()
        self._listener: DeviceListener | None = None
        self.port = 0

    async def listen(self) -> None:
        self._listener = DeviceListener(self.harness.identities, "127.0.0.1")
        self.port = await self._listener.start([partial(add_WorkerServiceServicer_to_server, self)], [self.port])

    async def stop_listening(self) -> None:
        if self._listener is not None:
            self.cut()
            await self._listener.stop(0)
            self._listener = None

    def cut(self) -> None:
        self._cut.set()

    def send(self, **command: Any) -> None:
        self._down.put_nowait(wire.DaemonCommand(**command))

    async def until(self, true: Callable[[], Any]) -> Any:
        async with asyncio.timeout(PATIENCE):
            while not (found := true()):
                self.require_understood()
                self.happened.clear()
                await self.happened.wait()
        return found

    def require_understood(self) -> None:
        if self.failures:
            raise self.failures[0]

    async def Work(self, messages: Any, context: Any) -> None:
        fingerprint = await self.harness.gate.fingerprint(context, "Work")
        try:
            peer = self.harness.gate.identities.identify(fingerprint)
        except PalyraError as refusal:
            await self.harness.gate.refuse(context, refusal, "Work", fingerprint)
        key = P256Verifier.from_certificate(context.auth_context()["x509_pem_cert"][0])
        self._down, self._cut = asyncio.Queue(), asyncio.Event()
        session = FakeSession(self, str(peer.device_id), key)
        reading = asyncio.create_task(self._read(messages, session))
        cutting = asyncio.create_task(self._cut.wait())
        try:
            while True:
                getting = asyncio.create_task(self._down.get())
                done, _ = await asyncio.wait((getting, reading, cutting), return_when=asyncio.FIRST_COMPLETED)
                if getting not in done:
                    getting.cancel()
                    return
                await context.write(wire.DaemonBatch(commands=[getting.result()]))
        finally:
            for task in (reading, cutting):
                task.cancel()
            await session.end()

    async def _read(self, messages: Any, session: "FakeSession") -> None:
        async for batch in messages:
            assert batch.device_id == session.worker_id
            for event in batch.events:
                try:
                    if not self.deaf:
                        await session.receive(event, batch.sequence)
                except AssertionError as failure:
                    self.failures.append(failure)
                    raise
                finally:
                    self.happened.set()

    async def FindMissingArtifacts(self, request: Any, _context: Any) -> Any:
        missing = [digest for digest in request.digests_sha256 if digest not in self.artifacts]
        return wire.FindMissingArtifactsResponse(digests_sha256=missing)

    async def UploadArtifact(self, messages: Any, _context: Any) -> Any:
        data, digest = b"", ""
        async for part in messages:
            if part.WhichOneof("part") == "head":
                digest = part.head.digest_sha256
            else:
                assert part.chunk.offset == len(data)
                data += part.chunk.data
        assert hashlib.sha256(data).hexdigest() == digest
        self.artifacts[digest] = data
        self.uploaded.append(digest)
        return wire.UploadArtifactResponse(digest_sha256=digest)

    async def DownloadArtifact(self, request: Any, context: Any) -> None:
        data = self.artifacts[request.digest_sha256]
        for start in range(0, len(data), 1000):
            await context.write(wire.ArtifactChunk(offset=start, data=data[start : start + 1000]))

    async def RenewCertificate(self, request: Any, context: Any) -> Any:
        gate = self.harness.gate
        peer = await gate.admit_renewal(context, (DeviceKind.WORKER,), request.device_id, "RenewCertificate")
        issued = await gate.identities.renew(peer, request.csr_der, request.generation)
        return wire.RenewCertificateResponse(
            certificate_pem=issued.certificate_pem, ca_bundle_pem=issued.ca_bundle_pem, generation=issued.generation
        )

    async def LeaveFleet(self, request: Any, _context: Any) -> Any:
        self.left.append(request.device_id)
        return wire.LeaveFleetResponse()

    def store(self, path: str, data: bytes, *, executable: bool = False) -> ArtifactRef:
        digest = hashlib.sha256(data).hexdigest()
        self.artifacts[digest] = data
        return ArtifactRef(path=path, digest_sha256=digest, size=len(data), executable=executable)

    async def lease(
        self,
        worker_id: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        inputs: tuple[ArtifactRef, ...] = (),
        timeout_ms: int = 60_000,
        read_only: bool = True,
        arrives: bool = True,
        **changes: Any,
    ) -> WorkerLease:
        """A lease that the ledger gave, and its offer sent unless it is lost; ``changes`` are to the offer alone."""
        now_ms, raw = self.harness.clock.now_ms(), canonical_json(arguments)
        digest = hashlib.sha256(raw).hexdigest()
        call = {
            "run_id": "01RUN",
            "call_id": f"call-{secrets.token_hex(4)}",
            "principal": "agent:a",
            "tool": tool,
            "argument_digest": digest,
        }
        grant_id = str(GrantId.new())
        grant = WorkerApprovalGrant(grant_id=grant_id, issued_ms=now_ms, expires_ms=now_ms + 60_000, **call)
        scope = WorkerWorkspaceScope.parse("/srv/work", read_only=read_only)
        decisions = await self.ledger.decide_all(
            [
                commands.IssueGrant(actor="palyrad", grant_id=grant_id, grant=grant),
                commands.LeaseWork(
                    actor="palyrad",
                    worker_id=worker_id,
                    lease_id=str(LeaseId.new()),
                    grant_id=grant_id,
                    needs=frozenset((f"tool.{tool}",)),
                    scope=scope,
                    inputs=inputs,
                    nonce=secrets.token_hex(32),
                    idempotent=False,
                    timeout_ms=timeout_ms,
                    max_output_bytes=1 << 20,
                    **call,
                ),
            ]
        )
        if decisions[1].refusal is not None:
            raise decisions[1].refusal
        lease = decisions[1].leases[0].lease
        fields: dict[str, Any] = {
            "lease_id": lease.lease_id,
            "fence": lease.fence,
            "arguments_json": raw,
            "scope": wire.WorkspaceScope(root=scope.root, allowed_paths=scope.allowed_paths, read_only=read_only),
            "inputs": [wire.Artifact(**msgspec.structs.asdict(each)) for each in inputs],
            "nonce": lease.nonce,
            "timeout_ms": timeout_ms,
            "max_output_bytes": lease.max_output_bytes,
            **call,
        }
        if arrives:
            self.send(lease=wire.LeaseOffer(**{**fields, **changes}))
        return lease

    def ask_for(self, lease: WorkerLease) -> None:
        self.send(owed=wire.LeaseOwed(lease_id=lease.lease_id, fence=lease.fence, nonce=lease.nonce))

    async def give_up(self, worker_id: str) -> None:
        """The worker was silent for too long: what it holds is void and owed."""
        self.harness.clock.ahead_ms += self.policy.heartbeat_timeout_ms
        await self.ledger.decide(commands.DeclareLost(actor="palyrad", worker_id=worker_id))

    async def settled(self, lease: WorkerLease) -> SettledReport:
        """The last word on this lease."""
        return await eventually(lambda: next((t for t in self.reports if t.statement.lease_id == lease.lease_id), None))


class FakeSession:
    def __init__(self, fleet: FakeFleet, worker_id: str, key: P256Verifier) -> None:
        self.fleet = fleet
        self.worker_id = worker_id
        self.key = key
        self.number = 0
        # The message that brought the last settlement.
        self.reported = 0

    async def end(self) -> None:
        if self.number:
            command = commands.EndSession(actor="w", worker_id=self.worker_id, session=self.number)
            await self.fleet.ledger.decide_all([command])

    async def receive(self, event: Any, sequence: int) -> None:
        fleet = self.fleet
        match event.WhichOneof("event"):
            case "hello":
                await self._hello(event.hello)
            case "attestation":
                await self._attest(event.attestation)
            case "heartbeat":
                fleet.beats.append(event.heartbeat)
                if sequence == self.reported:
                    fleet.beats_with_reports += 1
                fleet.send(heartbeat_ack=wire.HeartbeatAck(sequence=sequence))
            case "declined":
                fleet.declined.append(event.declined)
            case "disclaimer":
                await self._disclaim(event.disclaimer)
            case "output":
                sent = event.output
                assert len(fleet.output.get(sent.lease_id, b"")) == sent.offset
                fleet.output[sent.lease_id] = fleet.output.get(sent.lease_id, b"") + sent.data
            case "settlement":
                self.reported = sequence
                await self._settle(event.settlement)
            case "accepted" | "leaving":
                # Nothing here depends on them.
                pass
            case unknown:
                raise AssertionError(f"the fake daemon has no case for {unknown}")

    async def _hello(self, hello: Any) -> None:
        fleet, nonce = self.fleet, secrets.token_hex(32)
        fleet.hellos.append(hello)
        (decision,) = await fleet.ledger.decide_all(
            [
                commands.OpenSession(
                    actor="w",
                    worker_id=self.worker_id,
                    name=hello.display_name,
                    daemon="d",
                    boot_id=hello.boot_id,
                    slots=hello.slots,
                    nonce=nonce,
                    named=frozenset(hello.open_lease_ids),
                )
            ]
        )
        assert decision.worker is not None
        self.number = decision.worker.session
        fleet.send(
            welcome=wire.Welcome(
                protocol_version=1,
                session=self.number,
                heartbeat_interval_ms=fleet.policy.heartbeat_interval_ms,
                heartbeat_timeout_ms=fleet.policy.heartbeat_timeout_ms,
                settle_grace_ms=fleet.policy.settle_grace_ms,
                max_leases=fleet.policy.max_leases_per_worker,
                max_batch_bytes=1 << 20,
                void_lease_ids=fleet.void,
                ca_bundle_pem=fleet.harness.identities.ca_bundle_pem(),
            )
        )
        fleet.send(challenge=wire.Challenge(nonce=nonce, valid_ms=60_000))

    async def _attest(self, sent: Any) -> None:
        signed = SignedStatement(sent.payload, sent.signature)
        (decision,) = await self.fleet.ledger.decide_all(
            [
                commands.PresentAttestation(
                    actor="w",
                    worker_id=self.worker_id,
                    session=self.number,
                    signed=signed,
                    key=self.key,
                    egress_keys={},
                )
            ]
        )
        code = "" if decision.refusal is None else decision.refusal.code
        self.fleet.attestation_answers.append(code)
        self.fleet.send(attestation_answer=wire.AttestationAnswer(code=code))

    async def _disclaim(self, sent: Any) -> None:
        signed = SignedStatement(sent.statement.payload, sent.statement.signature)
        statement = open_statement(LeaseDisclaimer, signed, self.key)
        (decision,) = await self.fleet.ledger.decide_all(
            [
                commands.DisclaimLease(
                    actor="w",
                    worker_id=self.worker_id,
                    lease_id=sent.lease_id,
                    session=self.number,
                    statement=statement,
                )
            ]
        )
        code = "" if decision.refusal is None else decision.refusal.code
        self.fleet.disclaimed.append((statement, code))
        self.fleet.send(settlement_answer=wire.SettlementAnswer(lease_id=sent.lease_id, code=code))

    async def _settle(self, sent: Any) -> None:
        fleet = self.fleet
        signed = SignedStatement(sent.statement.payload, sent.statement.signature)
        statement = open_statement(LeaseSettlement, signed, self.key)
        attestation = verify_attestation(sent.attestation_json, (self.key,))
        assert hashlib.sha256(sent.result_json).hexdigest() == statement.output_digest == attestation.output_digest
        if fleet.holding:
            code = fleet.holding.pop(0)
        else:
            (decision,) = await fleet.ledger.decide_all(
                [
                    commands.SettleLease(
                        actor="w",
                        worker_id=self.worker_id,
                        lease_id=sent.lease_id,
                        session=self.number,
                        statement=statement,
                        digest=settlement_digest(signed),
                    )
                ]
            )
            code = "" if decision.refusal is None else decision.refusal.code
            fleet.reports.append(
                SettledReport(
                    statement=statement,
                    attestation=attestation,
                    result=msgspec.json.decode(sent.result_json),
                    error=msgspec.json.decode(sent.error_json) if sent.error_json else None,
                    answer=code,
                )
            )
        if code != "silence":
            fleet.send(settlement_answer=wire.SettlementAnswer(lease_id=sent.lease_id, code=code))


class Watcher:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.states: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def state(self, state: str, **_facts: Any) -> None:
        self.states.append(state)


class WorkerAgentHarness:
    """A worker on a folder of its own. ``agent`` may be started again: a second life on the same folder."""

    def __init__(self, fleet: FakeFleet, folder: Path, device: ByHand, settings: Settings) -> None:
        self.fleet = fleet
        self.folder = folder
        self.settings = settings
        self.state = StateDir.open(folder)
        self.pairing = open_folder(self.state)
        self.home = StateDir.open(self.state.path("worker"))
        self.worker_id = str(device.device_id)
        self.watcher = Watcher()
        self.pairing.save(
            DeviceRecord(
                device_name="bench",
                servers=(f"127.0.0.1:{fleet.port}",),
                device_id=self.worker_id,
                key_pem=Secret(device.key.pem().decode()),
                certificate_pem=device.issued.certificate_pem.decode(),
                ca_bundle_pem=fleet.harness.identities.ca_bundle_pem().decode(),
                generation=device.issued.generation,
            )
        )

    def record(self) -> DeviceRecord:
        found = self.pairing.load()
        assert found is not None
        return found

    @asynccontextmanager
    async def running(self, *, slots: int = 4, **changes: Any) -> AsyncIterator["asyncio.Task[End]"]:
        clock = SystemClock()
        calls = WorkerCalls(settings_of_calls(self.settings), self.home, egress=None, clock=clock)
        facts = WorkerFacts(
            boot_id=secrets.token_hex(8),
            platform="linux",
            software_version="1",
            slots=slots,
            capabilities=calls.capabilities,
            build_digest_sha256="b2" * 32,
        )
        self.agent = WorkerAgent(
            HeldIdentity(self.pairing, self.record()),
            facts=msgspec.structs.replace(facts, **changes),
            calls=calls,
            scratches=ScratchFolder(self.home.path("scratch"), remove_tree=remove_tree),
            notes=NoteFolder(self.home),
            egress=None,
            observer=self.watcher,
            clock=clock,
            draw=random.random,
        )
        task = self.life = asyncio.create_task(self.agent.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])
            await calls.close()
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def online(self) -> None:
        count = len(self.fleet.attestation_answers)
        await self.fleet.until(lambda: len(self.fleet.attestation_answers) > count)

    def scratch_names(self) -> list[str]:
        return sorted(path.name for path in self.home.path("scratch").iterdir())


@asynccontextmanager
async def worker_agent_harness(
    folder: Path,
    *,
    policy: WorkerFleetPolicy = POLICY,
    settings: Settings | None = None,
    certificate_seconds: int = 3600,
) -> AsyncIterator[WorkerAgentHarness]:
    (folder / "daemon").mkdir(mode=0o700)
    harness = NodeServerHarness(folder / "daemon", MovedClock())
    await harness.start()
    fleet = FakeFleet(harness, policy)
    await fleet.listen()
    try:
        device = await harness.pair("a worker", DeviceKind.WORKER)
        yield WorkerAgentHarness(fleet, folder / "machine", device, settings or Settings())
    finally:
        await fleet.stop_listening()
        await harness.stop()
        fleet.require_understood()
