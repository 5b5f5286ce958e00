"""``NodeService`` over gRPC: converts messages to values and back. The gate checks every call and every message."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import grpc

from palyra.clock import Clock
from palyra.devicelink import limits
from palyra.devicelink.limits import MAX_CAPABILITIES
from palyra.devicelink.server import connections
from palyra.devicelink.server.connections import Connected, NodeRegistry
from palyra.devicelink.server.gate import PeerGate, abort_with, turn_away
from palyra.devicelink.server.peer_checks import CapabilityCalls
from palyra.errors import Denied, InvalidInput, LimitExceeded, PalyraError
from palyra.identity.device import DeviceId, DeviceKind, actor_of
from palyra.identity.records import PeerIdentity
from palyra.nodes.domain import requests
from palyra.nodes.domain.rate_limits import CONNECTIONS, EXECUTIONS, DeviceRates, TooOften
from palyra.nodes.domain.records import DeviceCapabilityView
from palyra.nodes.domain.requests import Refused, Succeeded
from palyra.nodes.server.dispatcher import Dispatcher
from palyra.nodes.server.paired_devices import PairedDevices, Registration
from palyra.nodes.server.stream import DeviceStream, StreamEnd
from palyra.wire.node.v1 import node_pb2
from palyra.wire.node.v1.node_pb2_grpc import NodeServiceServicer

NODES: Final = frozenset((DeviceKind.NODE,))
_REGISTER: Final = "RegisterNode"
_STREAM: Final = "StreamNodeEvents"
_RESULT: Final = "ReportCapabilityResult"
_RENEW: Final = "RenewCertificate"
_LEAVE: Final = "RevokeDevicePairing"
_EXECUTE: Final = "ExecuteCapability"
_STATUS_OF_RESULT_ERRORS: Final = {
    requests.ResultUnknown: grpc.StatusCode.NOT_FOUND,
    requests.ResultFromOther: grpc.StatusCode.PERMISSION_DENIED,
    requests.ResultDuplicate: grpc.StatusCode.ALREADY_EXISTS,
    requests.ResultLate: grpc.StatusCode.FAILED_PRECONDITION,
    # Not RESOURCE_EXHAUSTED, which the transport uses and a device retries: this one is final.
    requests.ResultTooLarge: grpc.StatusCode.OUT_OF_RANGE,
}


class UnknownProtocol(InvalidInput):
    code = "nodes.unknown_protocol"
    hint = f"this daemon speaks version {limits.PROTOCOL_VERSION}: install the same release on both sides"


class NotRegistered(InvalidInput):
    code = "nodes.not_registered"
    hint = "RegisterNode comes before the stream, after every connection"


class TooManyNamed(LimitExceeded):
    code = "nodes.too_much_told"
    hint = "name the requests and capabilities that there are, and no more"


@dataclass(eq=False, repr=False, kw_only=True)
class NodeService(NodeServiceServicer):
    gate: PeerGate
    paired: PairedDevices
    dispatcher: Dispatcher
    registry: NodeRegistry
    execute: CapabilityCalls
    clock: Clock
    heartbeat_seconds: float

    def __post_init__(self) -> None:
        self._heartbeat_ms = max(1, round(self.heartbeat_seconds * 1000))
        self._connections = DeviceRates(CONNECTIONS)
        self._execution_rates = DeviceRates(EXECUTIONS)
        # The calls that run on behalf of a device. They end when the device is revoked.
        self._executing: dict[DeviceId, set[asyncio.Task[tuple[str, bytes]]]] = {}
        # The certificate that each device registered with last, in this process.
        self._registered: dict[DeviceId, str] = {}

    async def RegisterNode(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer = await self.gate.admit(context, NODES, request.device_id, _REGISTER)
        try:
            if request.protocol_version != limits.PROTOCOL_VERSION:
                raise UnknownProtocol(f"protocol version {request.protocol_version} is not known here")
            if len(request.open_request_ids) > limits.MAX_OPEN_REQUEST_IDS:
                raise TooManyNamed(f"more than {limits.MAX_OPEN_REQUEST_IDS} open requests were named")
            registration = Registration(
                platform=request.platform,
                software_version=request.software_version,
                capabilities=_capabilities(request.capabilities),
            )
            node = await self.paired.register(peer.device_id, registration)
            abandoned = await self.dispatcher.reunite(peer.device_id, tuple(request.open_request_ids))
        except PalyraError as error:
            await self._decline(context, error, _REGISTER, peer)
        self._registered[peer.device_id] = peer.fingerprint
        return node_pb2.RegisterNodeResponse(
            protocol_version=limits.PROTOCOL_VERSION,
            heartbeat_interval_ms=self._heartbeat_ms,
            withheld_capabilities=node.withheld,
            abandoned_request_ids=abandoned,
            max_result_bytes=self.dispatcher.max_result_bytes,
            ca_bundle_pem=self.gate.identities.ca_bundle_pem(),
        )

    async def StreamNodeEvents(self, _messages: Any, context: Any) -> None:  # noqa: N802
        fingerprint = await self.gate.fingerprint(context, _STREAM)
        try:
            peer = self.gate.identities.identify(fingerprint)
        except PalyraError as refusal:
            await self.gate.refuse(context, refusal, _STREAM, fingerprint)
        peer = await self.gate.admit_message(context, fingerprint, NODES, peer.device_id, _STREAM)
        if self._registered.get(peer.device_id) != fingerprint:
            await abort_with(context, NotRegistered("this certificate has not registered yet"))
        try:
            self._connections.take(peer.device_id, self.clock.monotonic())
        except TooOften as error:
            await self._decline(context, error, _STREAM, peer)
        stream = DeviceStream(context)
        connected = Connected(
            device_id=peer.device_id,
            fingerprint=fingerprint,
            generation=peer.generation,
            since_ms=self.clock.now_ms(),
            received_at=self.clock.monotonic(),
        )
        try:
            replaced = self.dispatcher.attach(connected, stream)
        except PalyraError as refusal:
            await self.gate.refuse(context, refusal, _STREAM, fingerprint)
        ending = StreamEnd(connections.CLOSED)
        try:
            # The newer certificate counts only now, so that the older one's stream was not refused before.
            await self.gate.identities.used(peer)
            await self.paired.note_connected(
                peer.device_id,
                generation=peer.generation,
                address=context.peer(),
                replaced=replaced,
                takeovers=connected.takeovers,
            )
            await context.send_initial_metadata(())
            await self.dispatcher.resume(peer.device_id)
            ending = await stream.run(self._message_handler(stream, connected))
        finally:
            if self.dispatcher.detach(connected):
                seconds = (self.clock.now_ms() - connected.since_ms) / 1000
                await asyncio.shield(self.paired.note_disconnected(peer.device_id, ending.code, seconds))
        if isinstance(ending.refusal, Denied):
            await self.gate.refuse(context, ending.refusal, _STREAM, fingerprint)
        if ending.refusal is not None:
            await self._decline(context, ending.refusal, _STREAM, peer)
        if ending.cut:
            await turn_away(context)

    def _message_handler(self, stream: DeviceStream, connected: Connected) -> Any:
        check, registry, clock = self.gate.check, self.registry, self.clock
        fingerprint, device_id = connected.fingerprint, connected.device_id

        async def on_message(message: Any) -> str | None:
            check(fingerprint, NODES, message.device_id)
            match message.WhichOneof("event"):
                case "heartbeat":
                    registry.heartbeat(connected, message.heartbeat.running, clock.monotonic())
                    await stream.acknowledge(message.sequence)
                    return None
                case "accepted":
                    await self.dispatcher.note_accepted(device_id, message.accepted.request_id)
                case "mediation":
                    await self.dispatcher.note_mediation(device_id, message.mediation.request_id)
                case "capabilities_changed":
                    await self._capabilities_changed(connected, message.capabilities_changed)
                case "leaving":
                    return connections.LEFT
            registry.note_message(connected, clock.monotonic())
            return None

        return on_message

    async def _capabilities_changed(self, connected: Connected, message: Any) -> None:
        registration = Registration(platform="", software_version="", capabilities=_capabilities(message.capabilities))
        await self.paired.register(connected.device_id, registration)

    async def ReportCapabilityResult(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer = await self.gate.admit(context, NODES, request.device_id, _RESULT)
        try:
            await self.dispatcher.take_result(peer.device_id, request.request_id, _result(request))
        except PalyraError as error:
            await self.gate.note(error, _RESULT, peer.fingerprint)
            await abort_with(context, error, _STATUS_OF_RESULT_ERRORS.get(type(error)))
        return node_pb2.ReportCapabilityResultResponse()

    async def RenewCertificate(self, request: Any, context: Any) -> Any:  # noqa: N802
        renewed = await self.gate.renew_certificate(context, NODES, request, _RENEW)
        return node_pb2.RenewCertificateResponse(**renewed)

    async def RevokeDevicePairing(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer = await self.gate.admit(context, NODES, request.device_id, _LEAVE)
        try:
            reason = request.reason or "the device left"
            await self.paired.revoke(peer.device_id, reason=reason, actor=actor_of(peer.kind, peer.device_id))
        except PalyraError as error:
            await abort_with(context, error)
        return node_pb2.RevokeDevicePairingResponse()

    async def ExecuteCapability(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer: PeerIdentity = await self.gate.admit(context, NODES, request.device_id, _EXECUTE)
        try:
            self._execution_rates.take(peer.device_id, self.clock.monotonic())
            call_id, output = await self._while_let_in(
                peer,
                self.execute(
                    peer.device_id, request.target_device_id, request.capability, request.input_json, request.timeout_ms
                ),
            )
        except PalyraError as error:
            await self._decline(context, error, _EXECUTE, peer)
        # A device that was revoked meanwhile gets no output.
        await self.gate.admit_message(context, peer.fingerprint, NODES, request.device_id, _EXECUTE)
        return node_pb2.ExecuteCapabilityResponse(call_id=call_id, output_json=output)

    def cancel_calls(self, device_id: DeviceId, code: str) -> None:
        """Cancel the calls that run, or wait for a person, on behalf of an ended device."""
        for task in tuple(self._executing.get(device_id, ())):
            task.cancel()

    async def _while_let_in(
        self, peer: PeerIdentity, work: Coroutine[Any, Any, tuple[str, bytes]]
    ) -> tuple[str, bytes]:
        running = self._executing.setdefault(peer.device_id, set())
        if len(running) >= limits.MAX_EXECUTIONS_PER_DEVICE:
            work.close()
            raise requests.TooManyRequests(f"{limits.MAX_EXECUTIONS_PER_DEVICE} calls for this device are running")
        task = asyncio.create_task(work, name="for a device")
        running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise requests.DeviceGone("the device may no longer connect", device=peer.device_id) from None
        finally:
            running.discard(task)
            if not running:
                self._executing.pop(peer.device_id, None)

    async def _decline(self, context: Any, error: PalyraError, method: str, peer: PeerIdentity) -> NoReturn:
        """Send an error to the device. An exceeded rate or number is also counted as a refusal."""
        if isinstance(error, TooOften | requests.TooManyRequests):
            await self.gate.note(error, method, peer.fingerprint)
        await abort_with(context, error)


def _capabilities(messages: Any) -> tuple[DeviceCapabilityView, ...]:
    if len(messages) > MAX_CAPABILITIES:
        raise TooManyNamed(f"a device may have {MAX_CAPABILITIES} capabilities")
    return tuple(
        DeviceCapabilityView(
            name=one.name,
            description=one.description,
            input_schema_json=one.input_schema_json,
            local_mediation=one.local_mediation,
            idempotent=one.idempotent,
        )
        for one in messages
    )


def _result(request: Any) -> Succeeded | Refused:
    if request.WhichOneof("outcome") == "output_json":
        return Succeeded(request.output_json)
    failure = request.failure
    return Refused(rejected=failure.kind == "rejected", code=failure.code, message=failure.message)
