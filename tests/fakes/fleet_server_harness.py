"""The daemon's side of the fleet on a real listener with real certificates, and workers that speak to it by hand."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec

from fakes.eventually import eventually
from fakes.identity_harness import DeviceKey
from fakes.journal_harness import JournalHarness
from fakes.node_server_harness import ByHand, MovedClock, NodeServerHarness
from palyra.canonical import canonical_json, digest_of
from palyra.config.state_dir import StateDir
from palyra.daemon.fleet_wiring import FleetServices
from palyra.devicelink.server.listener import DeviceListener
from palyra.fleet.domain.attestation import WorkerAttestation
from palyra.fleet.domain.lease import LeaseOutcome, LeaseRequest
from palyra.fleet.domain.policy import SDK_PROTOCOL_VERSION, WIT_ABI_VERSION, WorkerFleetSettings
from palyra.fleet.domain.settlement import (
    CleanupProof,
    LeaseDisclaimer,
    LeaseReport,
    LeaseSettlement,
)
from palyra.fleet.domain.signed_statement import sign_statement
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.fleet.store.schema import SCHEMA
from palyra.identity.device import DeviceKind
from palyra.signing.p256 import P256Signer
from palyra.signing.tool_attestation import ToolAttestation, attest_with_digest
from palyra.wire.worker.v1 import worker_pb2 as wire
from palyra.wire.worker.v1.worker_pb2_grpc import WorkerServiceStub

PATIENCE = 30.0
BUILD = "b2" * 32
SETTINGS = WorkerFleetSettings(require_egress_binding=False, build_digests=(BUILD,))
CAPABILITIES = ("tier.c", "tool.echo", "tool.process.run")
SCOPE = WorkerWorkspaceScope.parse("/srv/work", (".",), read_only=False)


class CountedMetrics:
    def __init__(self) -> None:
        self.ended: list[str] = []
        self.refused: list[str] = []

    def lease_ended(self, state: str, seconds: float) -> None:
        assert seconds >= 0
        self.ended.append(state)

    def worker_refused(self, code: str) -> None:
        self.refused.append(code)

    def watch(self, name: str, help_text: str, value: Any) -> None: ...


class FleetServerHarness:
    """``restart`` is another life of the daemon on the same disk."""

    def __init__(self, folder: Path, settings: WorkerFleetSettings = SETTINGS) -> None:
        self.folder = folder
        self.settings = settings
        self.clock = MovedClock()
        self.nodes = NodeServerHarness(folder, self.clock)
        (folder / "fleet").mkdir(mode=0o700, exist_ok=True)
        self.metrics = CountedMetrics()
        self.unpaired: list[str] = []

    async def start(self) -> None:
        await self.nodes.start()
        await self.open()

    async def open(self) -> None:
        self.store = JournalHarness(self.folder / "fleet").open(schema=SCHEMA, clock=self.clock)
        self.further: list[Any] = []
        self.on_ended: list[Any] = []
        self.parts = FleetServices(
            self.settings,
            store=self.store,
            state=StateDir.open(self.folder / "fleet"),
            clock=self.clock,
            identity=lambda: self.nodes.identities,
            unpair=self._unpair,
            instance="this",
            metrics=self.metrics,
        )
        self.parts.join(self, self.metrics)  # type: ignore[arg-type]
        self.nodes.identities.on_ended += self.on_ended
        self._running = self.parts.running()
        await self._running.__aenter__()
        self.listener = DeviceListener(self.nodes.identities, "127.0.0.1")
        self.port = await self.listener.start([add(self.nodes.gate) for add in self.further], [0])

    async def close(self) -> None:
        await self._running.__aexit__(None, None, None)
        for each in self.on_ended:
            self.nodes.identities.on_ended.remove(each)
        await self.listener.stop(0.5)
        self.store.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def stop(self) -> None:
        await self.close()
        await self.nodes.stop()

    async def _unpair(self, device_id: str, *, reason: str, actor: str) -> None:
        self.unpaired.append(device_id)

    async def worker(self, name: str = "a worker", kind: DeviceKind = DeviceKind.WORKER) -> "HandWorker":
        return HandWorker(self, await self.nodes.pair(name, kind))

    def events(self, kind: str = "") -> list[Any]:
        return [event.payload_value() for event in self.store.events_since(0, 100_000, kind=kind)]

    def ask(self, **changes: Any) -> LeaseRequest:
        arguments = {"text": "hi"}
        fields: dict[str, Any] = {
            "run_id": "01RUN",
            "call_id": "01CALL",
            "principal": "agent:a",
            "tool": "echo",
            "arguments_json": canonical_json(arguments),
            "argument_digest": digest_of(arguments),
            "tier": "builtin",
            "needs": frozenset(("tool.echo",)),
            "scope": SCOPE,
            "idempotent": True,
            "timeout_ms": 60_000,
            "max_output_bytes": 10_000,
        }
        return LeaseRequest(**{**fields, **changes})

    def call(self, **changes: Any) -> "asyncio.Task[LeaseReport]":
        return asyncio.create_task(self.parts.calls().run(self.ask(**changes)))


class EnvelopeKey:
    """A device's key as envelopes want it."""

    def __init__(self, key: DeviceKey) -> None:
        self.signer = P256Signer.from_pem(key.pem())
        self.key_id = self.signer.verifier().key_id

    def sign(self, message: bytes) -> bytes:
        return self.signer.sign(message)

    def public_key(self) -> bytes:
        return self.signer.verifier().public_der()


class HandWorker:
    """A worker whose every message the test writes itself."""

    def __init__(self, harness: FleetServerHarness, device: ByHand) -> None:
        self.harness = harness
        self.device = device
        self.worker_id = str(device.device_id)
        self.key = EnvelopeKey(device.key)
        self.boot_id = "boot-1"
        self.slots = 4
        self.call: Any = None
        self.sequence = 0
        self.heard: list[Any] = []

    def stub(self, **options: Any) -> Any:
        self.device.connect(self.harness.port, **options)
        return WorkerServiceStub(self.device.channels[-1])

    async def open(self, *, open_ids: tuple[str, ...] = (), hello: Any = None, claimed: str = "") -> None:
        self.heard.clear()
        self.sequence = 0
        self.rpc = self.stub()
        self.call = self.rpc.Work(timeout=4 * PATIENCE)
        greeting = hello or wire.Hello(
            protocol_version=1,
            display_name="a worker",
            boot_id=self.boot_id,
            slots=self.slots,
            open_lease_ids=open_ids,
        )
        await self.say(hello=greeting, claimed=claimed)

    async def online(self, **options: Any) -> "HandWorker":
        """Connected and attested."""
        await self.open(**options)
        challenge = await self.receive("challenge")
        answer = await self.attest(challenge.nonce)
        assert answer.code == "", answer.message
        return self

    async def say(self, *, claimed: str = "", **event: Any) -> None:
        self.sequence += 1
        batch = wire.WorkerBatch(
            device_id=claimed or self.worker_id, sequence=self.sequence, events=[wire.WorkerEvent(**event)]
        )
        await self.call.write(batch)

    async def receive(self, kind: str) -> Any:
        """The next command of this kind; others are kept for those who want them."""
        while True:
            for index, command in enumerate(self.heard):
                if command.WhichOneof("command") == kind:
                    del self.heard[index]
                    return getattr(command, kind)
            batch = await asyncio.wait_for(self.call.read(), PATIENCE)
            assert batch is not grpc.aio.EOF, f"the stream ended before {kind}"
            self.heard += batch.commands

    async def ended(self) -> Any:
        """The status that the daemon ended the stream with."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    batch = await self.call.read()
                except grpc.aio.AioRpcError:
                    break
                if batch is grpc.aio.EOF:
                    break
                self.heard += batch.commands
            return await self.call.code()

    def attestation(self, challenge: str, **changes: Any) -> Any:
        now_ms = self.harness.clock.now_ms()
        said = WorkerAttestation(
            worker_id=self.worker_id,
            build_digest_sha256=BUILD,
            egress_proxy_attested=False,
            supported_capabilities=CAPABILITIES,
            sdk_protocol_version=SDK_PROTOCOL_VERSION,
            wit_abi_version=WIT_ABI_VERSION,
            issued_ms=now_ms,
            expires_ms=now_ms + 3_600_000,
            nonce=challenge,
        )
        signed = sign_statement(msgspec.structs.replace(said, **changes), self.key.signer)
        return wire.SignedStatement(payload=signed.payload, signature=signed.signature)

    async def attest(self, challenge: str, **changes: Any) -> Any:
        await self.say(attestation=self.attestation(challenge, **changes))
        return await self.receive("attestation_answer")

    async def beat(self, workspaces: int = 0) -> Any:
        await self.say(heartbeat=wire.Heartbeat(workspaces=workspaces, slots=self.slots))
        return await self.receive("heartbeat_ack")

    def settlement(
        self, offer: Any, result: Any = None, *, artifacts: tuple[ArtifactRef, ...] = (), **changes: Any
    ) -> Any:
        """What an honest worker sends; then the changes of the statement, the attestation or the message."""
        now_ms = self.harness.clock.now_ms()
        said = {"text": "hi"} if result is None else result
        raw = canonical_json(said)
        outcome = changes.pop("outcome", LeaseOutcome.SUCCEEDED)
        error = changes.pop("error", None)
        about = {name: changes.pop(name) for name in list(changes) if name in ToolAttestation.__struct_fields__}
        execution = ToolAttestation(
            **{
                "call_id": offer.call_id,
                "run_id": offer.run_id,
                "principal": offer.principal,
                "tool": offer.tool,
                "argument_digest": offer.argument_digest,
                "decision": "leased",
                "policies": (),
                "bundle_digest": "",
                "executor": f"worker/{self.worker_id}",
                "receipt": (),
                "outcome": outcome.value,
                "output_digest": hashlib.sha256(raw).hexdigest(),
                "started_ms": now_ms,
                "ended_ms": now_ms,
                **about,
            }
        )
        envelope, digest = attest_with_digest(execution, (self.key,))
        proof = {name: changes.pop(name) for name in list(changes) if name in CleanupProof.__struct_fields__[3:]}
        statement = LeaseSettlement(
            worker_id=self.worker_id,
            lease_id=offer.lease_id,
            fence=changes.pop("fence", offer.fence),
            outcome=outcome,
            error_code="" if error is None else error["code"],
            output_digest=hashlib.sha256(raw).hexdigest(),
            output_bytes=len(raw),
            artifacts=artifacts,
            execution_sha256=digest,
            started_ms=now_ms,
            ended_ms=now_ms,
            cleanup=CleanupProof(
                **{
                    "lease_id": offer.lease_id,
                    "fence": offer.fence,
                    "nonce": offer.nonce,
                    "workspace": "8:1",
                    "ended_ms": now_ms,
                    "checked_ms": now_ms,
                    "entries_left": 0,
                    "processes_left": 0,
                    "mounts_left": 0,
                    **proof,
                }
            ),
        )
        signed = sign_statement(statement, self.key.signer)
        message = {
            "lease_id": offer.lease_id,
            "statement": wire.SignedStatement(payload=signed.payload, signature=signed.signature),
            "result_json": raw,
            "attestation_json": envelope.to_json(),
            "error_json": b"" if error is None else msgspec.json.encode(error),
        }
        return wire.Settlement(**{**message, **changes})

    async def settle(self, offer: Any, result: Any = None, **changes: Any) -> Any:
        await self.say(settlement=self.settlement(offer, result, **changes))
        return await self.receive("settlement_answer")

    def disclaimer(self, owed: Any, *, session: int, signer: EnvelopeKey | None = None, **changes: Any) -> Any:
        """What a worker says that never got the lease; then the changes of the statement and its look."""
        now_ms = self.harness.clock.now_ms()
        proof = {name: changes.pop(name) for name in list(changes) if name in CleanupProof.__struct_fields__}
        cleanup = CleanupProof(
            **{
                "lease_id": owed.lease_id,
                "fence": owed.fence,
                "nonce": owed.nonce,
                "workspace": "",
                "ended_ms": now_ms,
                "checked_ms": now_ms,
                "entries_left": 0,
                "processes_left": 0,
                "mounts_left": 0,
                **proof,
            }
        )
        said = {"worker_id": self.worker_id, "boot_id": self.boot_id, "session": session, "cleanup": cleanup}
        signed = sign_statement(LeaseDisclaimer(**{**said, **changes}), (signer or self.key).signer)
        statement = wire.SignedStatement(payload=signed.payload, signature=signed.signature)
        return wire.LeaseDisclaimer(lease_id=owed.lease_id, statement=statement)

    async def disclaim(self, owed: Any, **changes: Any) -> Any:
        session = changes.pop("session", self.record().session)
        await self.say(disclaimer=self.disclaimer(owed, session=session, **changes))
        return await self.receive("settlement_answer")

    async def given_up(self) -> None:
        """The line breaks, and the worker is silent until its leases are void."""
        await self.hang_up()
        self.harness.clock.ahead_ms += self.harness.settings.policy(BUILD).heartbeat_timeout_ms + 1_000
        await eventually(lambda: self.record().state.value in ("orphaned", "offline"))

    async def hang_up(self) -> None:
        """The line breaks: nothing is said."""
        self.call.cancel()
        await eventually(lambda: self.harness.parts.sessions.session(self.worker_id) is None)

    def record(self) -> Any:
        return self.harness.parts.ledger.worker(self.worker_id)

    async def close(self) -> None:
        await self.device.close()


@asynccontextmanager
async def open_harness(folder: Path, settings: WorkerFleetSettings = SETTINGS) -> AsyncIterator[FleetServerHarness]:
    harness = FleetServerHarness(folder, settings)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()
