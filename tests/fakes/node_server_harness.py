"""The daemon's side of nodes on a real listener with real certificates, and devices that speak to it by hand."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import msgspec

from fakes.identity_harness import ACTOR, DeviceKey
from fakes.journal_harness import JournalHarness
from fakes.node_state_harness import SCHEMA, node_record
from palyra.clock import SystemClock
from palyra.devicelink.limits import PROTOCOL_VERSION
from palyra.devicelink.server.connections import NodeRegistry
from palyra.devicelink.server.gate import PeerGate
from palyra.devicelink.server.listener import DeviceListener
from palyra.devicelink.server.peer_checks import RefusalKind
from palyra.errors import Denied
from palyra.identity.authorities import Authorities
from palyra.identity.certificate import fingerprint_of
from palyra.identity.device import DeviceId, DeviceKind
from palyra.identity.identity_manager import IdentityManager
from palyra.identity.records import IssuedCertificate
from palyra.identity.tables import SCHEMA as IDENTITY_SCHEMA
from palyra.nodes.domain.records import CapabilityRequestRecord, DeviceCapabilityView, NodeRecord
from palyra.nodes.server.dispatcher import CapabilityCall, Dispatcher
from palyra.nodes.server.paired_devices import PairedDevices
from palyra.nodes.server.rpc import NodeService
from palyra.nodes.store import node_tables
from palyra.nodes.store.file import NodeRuntimeState
from palyra.nodes.store.port import NodeState
from palyra.store.event import NewEvent
from palyra.vault.envelope import AesGcm
from palyra.vault.key_file import KeyFile
from palyra.wire.node.v1 import node_pb2 as wire
from palyra.wire.node.v1.node_pb2_grpc import NodeServiceStub, add_NodeServiceServicer_to_server

PATIENCE = 30.0
MAX_RESULT_BYTES = 4096
ECHO = DeviceCapabilityView(name="echo", idempotent=True)
PRINT = DeviceCapabilityView(name="print", description="prints a page")


class MovedClock(SystemClock):
    """The time of day, and how far a test moved it ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_ms / 1000


class NodeServerHarness:
    """One life of the daemon's side. Made again on the same folder it is a daemon that was restarted."""

    def __init__(
        self,
        folder: Path,
        clock: MovedClock,
        *,
        heartbeat_timeout: float = PATIENCE,
        heartbeat_seconds: float = 1.0,
        certificate_seconds: int = 3600,
    ) -> None:
        self.clock = clock
        for name in ("state", "config"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        self.folder = folder / "state"
        self.store = JournalHarness(self.folder).open(schema=(*SCHEMA, *IDENTITY_SCHEMA), clock=clock)
        place = KeyFile(folder / "config" / "vault.key", self.folder)
        authorities = Authorities(
            store=self.store,
            clock=clock,
            aead=AesGcm(),
            random=os.urandom,
            sources={place.kind: place},
            source=place.kind,
            actor="palyrad",
        )
        self.identities = IdentityManager(
            store=self.store, clock=clock, authorities=authorities, certificate_seconds=certificate_seconds
        )
        self.heartbeat_timeout = heartbeat_timeout
        self.heartbeat_seconds = heartbeat_seconds
        self.registry = NodeRegistry()
        self.executed: list[tuple[Any, ...]] = []
        self.refused: list[str] = []

    async def start(self, backend: str = "file") -> None:
        await self.identities.open()
        self.state: NodeState = (
            await NodeRuntimeState.open(self.folder, self.store, self.clock)
            if backend == "file"
            else node_tables.SqlNodeState(self.store, self.clock)
        )
        self.dispatcher = Dispatcher(
            state=self.state,
            registry=self.registry,
            clock=self.clock,
            instance="this",
            max_result_bytes=MAX_RESULT_BYTES,
            heartbeat_timeout=self.heartbeat_timeout,
        )
        self.paired = PairedDevices(
            state=self.state,
            registry=self.registry,
            dispatcher=self.dispatcher,
            identities=lambda: self.identities,
            clock=self.clock,
        )
        self.identities.on_ended.append(self.dispatcher.end_device)
        self.gate = PeerGate(
            self.identities,
            fingerprint_of=fingerprint_of,
            is_paired=self.paired.is_paired,
            record=self._record,
            clock=self.clock,
            on_refused=self.refused.append,
        )
        self.service = service = NodeService(
            gate=self.gate,
            paired=self.paired,
            dispatcher=self.dispatcher,
            registry=self.registry,
            execute=self._execute,
            clock=self.clock,
            heartbeat_seconds=self.heartbeat_seconds,
        )
        self.identities.on_ended.append(service.cancel_calls)
        self.listener = DeviceListener(self.identities, "127.0.0.1")
        self.services = [partial(add_NodeServiceServicer_to_server, service)]
        self.port = await self.listener.start(self.services, [0])
        self.tending = asyncio.create_task(self.dispatcher.tend())

    async def stop(self) -> None:
        self.dispatcher.end_all()
        self.tending.cancel()
        await asyncio.wait([self.tending])
        await self.listener.stop(0.5)
        self.store.close()

    async def _execute(
        self, device_id: DeviceId, target: str, capability: str, input_json: bytes, timeout_ms: int
    ) -> tuple[str, bytes]:
        self.executed.append((device_id, target, capability, input_json, timeout_ms))
        if capability == "forbidden":
            raise Unwelcome("policy says no")
        return "01CALL", b'{"ok":true}'

    async def _record(self, kind: RefusalKind, count: int) -> None:
        event = NewEvent(kind="node.peer_refused", actor="palyrad", payload={**kind._asdict(), "count": count})
        await self.store.transact(lambda tx: tx.append(event))

    def events(self, kind: str = "") -> list[Any]:
        return [event.payload_value() for event in self.store.events_since(0, 100_000, kind=kind)]

    def request(self, request_id: str) -> CapabilityRequestRecord | None:
        return self.state.read(lambda unit: unit.requests.get(request_id))

    def requests(self) -> list[CapabilityRequestRecord]:
        return self.state.read(lambda unit: list(unit.requests.list()))

    async def pair(self, name: str = "a laptop", kind: DeviceKind = DeviceKind.NODE) -> "ByHand":
        """As a finished pairing leaves it: a certificate and a record."""
        key, device_id = DeviceKey(), DeviceId.new()
        issued = await self.identities.issue(kind, device_id, key.csr(), actor=ACTOR)
        await self.state.transact(lambda unit: unit.nodes.put(node_record(id=device_id, kind=kind, name=name)))
        return ByHand(self, key, issued)

    def ask(self, device: "ByHand", capability: DeviceCapabilityView = ECHO, **changes: Any) -> CapabilityCall:
        fields = {
            "device_id": device.device_id,
            "capability": capability,
            "input_json": b'{"text":"hi"}',
            "input_digest": "00",
            "timeout_ms": int(PATIENCE * 1000),
            "principal": "agent:a",
            "call_id": "01CALL",
        }
        return CapabilityCall(**{**fields, **changes})

    def invoke(
        self, device: "ByHand", capability: DeviceCapabilityView = ECHO, **changes: Any
    ) -> "asyncio.Task[bytes]":
        return asyncio.create_task(self.dispatcher.invoke(self.ask(device, capability, **changes)))


class Unwelcome(Denied):
    code = "test.unwelcome"


class ByHand:
    """A device whose every message the test writes itself."""

    def __init__(self, harness: NodeServerHarness, key: DeviceKey, issued: IssuedCertificate) -> None:
        self.harness = harness
        self.key = key
        self.issued = issued
        self.device_id = issued.device_id
        self.channels: list[Any] = []
        self.stub: Any = None

    def connect(self, port: int | None = None, *, key: DeviceKey | None = None, chain: bytes | None = None) -> Any:
        credentials = grpc.ssl_channel_credentials(
            root_certificates=self.harness.identities.ca_bundle_pem(),
            private_key=(key or self.key).pem(),
            certificate_chain=self.issued.certificate_pem if chain is None else chain,
        )
        channel = grpc.aio.secure_channel(
            f"127.0.0.1:{port or self.harness.port}",
            credentials,
            options=(
                ("grpc.ssl_target_name_override", "palyra"),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),
            ),
        )
        self.channels.append(channel)
        self.stub = NodeServiceStub(channel)
        return self.stub

    async def register(
        self, *capabilities: DeviceCapabilityView, open_ids: tuple[str, ...] = (), stub: Any = None, **changes: Any
    ) -> Any:
        request = wire.RegisterNodeRequest(
            device_id=changes.pop("device_id", self.device_id),
            protocol_version=changes.pop("protocol_version", PROTOCOL_VERSION),
            platform="linux",
            software_version="1",
            capabilities=[wire.Capability(**_fields(one)) for one in capabilities or (ECHO, PRINT)],
            open_request_ids=open_ids,
        )
        return await (stub or self.stub).RegisterNode(request, timeout=PATIENCE)

    def stream(self, stub: Any = None) -> "HandStream":
        return HandStream(self, (stub or self.stub).StreamNodeEvents(timeout=PATIENCE))

    async def online(self, **options: Any) -> "HandStream":
        """Connected, registered, and with a stream that the daemon has answered on."""
        self.connect()
        await self.register(**options)
        stream = self.stream()
        await stream.beat()
        return stream

    async def report(
        self, request_id: str, output: bytes = b'"done"', *, device_id: str = "", stub: Any = None
    ) -> None:
        request = wire.ReportCapabilityResultRequest(
            device_id=device_id or self.device_id, request_id=request_id, output_json=output
        )
        await (stub or self.stub).ReportCapabilityResult(request, timeout=PATIENCE)

    async def fail(self, request_id: str, kind: str, code: str, message: str) -> None:
        failure = wire.CapabilityFailure(kind=kind, code=code, message=message)
        request = wire.ReportCapabilityResultRequest(device_id=self.device_id, request_id=request_id, failure=failure)
        await self.stub.ReportCapabilityResult(request, timeout=PATIENCE)

    async def renew(self, generation: int | None = None, **changes: Any) -> Any:
        request = wire.RenewCertificateRequest(
            device_id=changes.get("device_id", self.device_id),
            csr_der=changes.get("csr", self.key.csr()),
            generation=self.issued.generation if generation is None else generation,
        )
        return await self.stub.RenewCertificate(request, timeout=PATIENCE)

    def adopt(self, renewed: Any) -> None:
        """Uses a renewed certificate from now on."""
        self.issued = msgspec.structs.replace(
            self.issued, certificate_pem=renewed.certificate_pem, generation=renewed.generation
        )

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close()


class HandStream:
    def __init__(self, device: ByHand, call: Any) -> None:
        self.device = device
        self.call = call
        self.sequence = 0

    async def say(self, *, device_id: str | None = None, **event: Any) -> None:
        self.sequence += 1
        claimed = self.device.device_id if device_id is None else device_id
        await self.call.write(wire.NodeEvent(device_id=claimed, sequence=self.sequence, **event))

    async def beat(self, **changes: Any) -> Any:
        """One heartbeat and its answer; commands that come before it are returned by ``receive`` no more."""
        await self.say(heartbeat=wire.Heartbeat(), **changes)
        return await self.receive("heartbeat_ack")

    async def receive(self, kind: str) -> Any:
        """The next command of this kind; an end of the stream is raised or, if it was in order, an AssertionError."""
        while True:
            command = await self.call.read()
            assert command is not grpc.aio.EOF, "the stream ended"
            if command.WhichOneof("command") == kind:
                return getattr(command, kind)

    async def ended(self) -> Any:
        """The status that the daemon ended the stream with."""
        while True:
            try:
                if await self.call.read() is grpc.aio.EOF:
                    break
            except grpc.aio.AioRpcError:
                break
        return await self.call.code()


def _fields(one: DeviceCapabilityView) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(one)
    del fields["withheld"]
    return fields


def code_of(error: grpc.aio.AioRpcError) -> str:
    """Palyra's code in the answer, if it was told."""
    return str(dict(error.trailing_metadata() or ()).get("palyra-code", ""))


@asynccontextmanager
async def open_harness(
    tmp_path: Path, *, backend: str = "file", clock: MovedClock | None = None, **options: Any
) -> AsyncIterator[NodeServerHarness]:
    harness = NodeServerHarness(tmp_path, clock or MovedClock(), **options)
    await harness.start(backend)
    try:
        yield harness
    finally:
        await harness.stop()


def node_of(harness: NodeServerHarness, device: ByHand) -> NodeRecord:
    node = harness.state.read(lambda unit: unit.nodes.get(device.device_id))
    assert node is not None
    return node


def ended_while_writing(error: grpc.aio.AioRpcError) -> bool:
    """The daemon had ended the stream before the message was sent. gRPC then puts an error of its own in the place of
    the daemon's word, which is lost to the caller."""
    return error.code() is grpc.StatusCode.INTERNAL and "SendMessageOperation" in error.debug_error_string()
