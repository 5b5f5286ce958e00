"""One connection to the daemon over mutual TLS: registration, the stream, and the unary calls beside it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from palyra.devicelink.agent.channel import describe_failure, is_cancelling, open_channel, read_renewal
from palyra.devicelink.agent.identity import Credentials, Renewed
from palyra.devicelink.limits import CODE_KEY, PROTOCOL_VERSION
from palyra.nodes import limits
from palyra.nodes.agent.messages import (
    Acknowledged,
    AuthoritiesChanged,
    Cancelled,
    Dismissed,
    Dispatch,
    Dispatched,
    Incoming,
    LossKind,
    Offer,
    Outcome,
    OutcomeKind,
    OutputTooLarge,
    Registration,
    Welcome,
    is_sound,
)
from palyra.wire.node.v1 import node_pb2 as wire
from palyra.wire.node.v1.node_pb2_grpc import NodeServiceStub

_REFUSALS: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
# The daemon was not reached, or no longer knows this link. Another link may deliver the same result.
_UNSENT: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


class LinkLost(Exception):
    """The connection failed, was lost, or was refused."""

    def __init__(self, kind: LossKind, why: str, *, final: bool = False, too_large: bool = False) -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why
        # The daemon refused the message for good. A retry would change nothing.
        self.final = final
        # The message is larger than gRPC accepts, so the daemon never sees it.
        self.too_large = too_large


class GrpcLink:
    """A connection to one address with one certificate, used once."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._channel = open_channel(address, credentials)
        self._stub: Any = NodeServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._device_id = ""
        self._sequence = 0
        self._waiting: asyncio.Queue[wire.NodeEvent | None] = asyncio.Queue()

    async def register(self, registration: Registration) -> tuple[Welcome, str]:
        """Register the device. Return the daemon's answer, and the authorities to trust from now on."""
        self._device_id = registration.device_id
        request = wire.RegisterNodeRequest(
            device_id=registration.device_id,
            protocol_version=PROTOCOL_VERSION,
            display_name=registration.display_name,
            platform=registration.platform,
            software_version=registration.software_version,
            capabilities=[_capability(offer) for offer in registration.offers],
            open_request_ids=registration.open_request_ids,
        )
        answer = await self._call(self._stub.RegisterNode, request, limits.OPEN_SECONDS)
        welcome = Welcome(
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
            max_result_bytes=answer.max_result_bytes,
            withheld=tuple(answer.withheld_capabilities),
            abandoned=tuple(answer.abandoned_request_ids),
        )
        return welcome, answer.ca_bundle_pem.decode("ascii", "replace")

    async def stream(self, on_open: Callable[[], None], on_message: Callable[[Incoming], Awaitable[None]]) -> None:
        """Read the stream until it ends, which raises ``LinkLost``. ``on_open`` runs at the daemon's first answer.

        The next message is read once ``on_message`` has returned.
        """
        self.heartbeat(0)
        call = self._stub.StreamNodeEvents(_Outgoing(self._waiting))
        is_open = False
        try:
            async with asyncio.timeout(limits.OPEN_SECONDS) as opening:
                async for command in call:
                    if not is_open:
                        is_open = True
                        opening.reschedule(None)
                        on_open()
                    incoming = _read_command(command)
                    if incoming is not None:
                        await on_message(incoming)
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from None
        except TimeoutError:
            raise LinkLost(LossKind.UNREACHABLE, "the daemon does not answer on the stream") from None
        finally:
            call.cancel()
        raise LinkLost(LossKind.UNREACHABLE, "the daemon ended the stream")

    def heartbeat(self, running: int) -> None:
        self._send(heartbeat=wire.Heartbeat(running=running))

    def accepted(self, request_id: str) -> None:
        self._send(accepted=wire.CapabilityAccepted(request_id=request_id))

    def mediation(self, request_id: str) -> None:
        self._send(mediation=wire.CapabilityMediation(request_id=request_id))

    def leaving(self, reason: str) -> None:
        self._send(leaving=wire.Leaving(reason=reason))

    def say_no_more(self) -> None:
        """End our half of the stream."""
        self._waiting.put_nowait(None)

    async def report(self, request_id: str, outcome: Outcome) -> None:
        request = wire.ReportCapabilityResultRequest(device_id=self._device_id, request_id=request_id)
        if outcome.kind is OutcomeKind.SUCCEEDED:
            request.output_json = outcome.output_json
        else:
            request.failure.CopyFrom(
                wire.CapabilityFailure(kind=outcome.kind.value, code=outcome.code, message=outcome.message)
            )
        try:
            await self._call(self._stub.ReportCapabilityResult, request, limits.CALL_SECONDS)
        except LinkLost as lost:
            if not lost.too_large:
                raise
            # Report the error in its place, so that the caller does not wait for the deadline.
            error = OutputTooLarge("the result is larger than a message to the daemon may be")
            await self.report(request_id, Outcome.failed(error.code, error.message))

    async def renew(self, csr_der: bytes, generation: int) -> Renewed:
        request = wire.RenewCertificateRequest(device_id=self._device_id, csr_der=csr_der, generation=generation)
        answer = await self._call(self._stub.RenewCertificate, request, limits.CALL_SECONDS)
        return read_renewal(answer)

    async def end_pairing(self, device_id: str, reason: str) -> None:
        request = wire.RevokeDevicePairingRequest(device_id=device_id, reason=reason)
        await self._call(self._stub.RevokeDevicePairing, request, limits.CALL_SECONDS)

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, method: Any, request: Any, seconds: float) -> Any:
        try:
            return await method(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from None
        except asyncio.CancelledError:
            # A channel that is closed cancels its calls. A cancellation by the caller goes on.
            if is_cancelling():
                raise
            raise LinkLost(LossKind.UNREACHABLE, "the link was closed") from None

    def _send(self, **event: Any) -> None:
        self._sequence += 1
        self._waiting.put_nowait(wire.NodeEvent(device_id=self._device_id, sequence=self._sequence, **event))


class _Outgoing:
    """The outgoing messages, as an iterator.

    It is not a generator: gRPC may drop it while it waits, and a generator would then be closed in the middle of that.
    """

    def __init__(self, waiting: "asyncio.Queue[wire.NodeEvent | None]") -> None:
        self._waiting = waiting

    def __aiter__(self) -> "_Outgoing":
        return self

    async def __anext__(self) -> wire.NodeEvent:
        event = await self._waiting.get()
        if event is None:
            raise StopAsyncIteration
        return event


def _lost(error: grpc.aio.AioRpcError) -> LinkLost:
    code = error.code()
    kind = LossKind.REFUSED if code in _REFUSALS else LossKind.UNREACHABLE
    why = describe_failure(error)
    has_code = any(key == CODE_KEY for key, _ in error.trailing_metadata() or ())
    too_large = code is grpc.StatusCode.RESOURCE_EXHAUSTED and not has_code and "larger than max" in why
    return LinkLost(kind, why, final=code not in _UNSENT, too_large=too_large)


def _capability(offer: Offer) -> wire.Capability:
    return wire.Capability(
        name=offer.name,
        description=offer.description,
        input_schema_json=json.dumps(offer.input_schema, separators=(",", ":")),
        local_mediation=offer.local_mediation,
        idempotent=offer.idempotent,
    )


def _read_command(command: Any) -> Incoming | None:
    match command.WhichOneof("command"):
        case "heartbeat_ack":
            return Acknowledged(command.heartbeat_ack.sequence)
        case "dispatch":
            sent = command.dispatch
            dispatch = Dispatch(
                request_id=sent.request_id,
                capability=sent.capability,
                input_json=sent.input_json,
                timeout_ms=sent.timeout_ms,
                max_result_bytes=sent.max_result_bytes,
            )
            return Dispatched(dispatch) if is_sound(dispatch) else None
        case "cancel":
            return Cancelled(command.cancel.request_id)
        case "certificate_news":
            news = command.certificate_news
            return AuthoritiesChanged(news.ca_bundle_pem.decode("ascii", "replace"), news.renew_now)
        case "goodbye":
            return Dismissed(command.goodbye.code[:64])
    return None
