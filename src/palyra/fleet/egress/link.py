"""The proxy's connection to the daemon, over mutual TLS: the leases it is told of, and what it reports."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
import msgspec

from palyra.fleet import limits
from palyra.fleet.egress.leases import DaemonLinkLost, LeaseGrant, LeaseRef, Orders, is_sound
from palyra.fleet.egress.violations import Spooled
from palyra.identity.certificate import SERVER_NAME
from palyra.secret import Secret
from palyra.wire.egress.v1 import egress_pb2
from palyra.wire.egress.v1.egress_pb2_grpc import LeaseGrantServiceStub
from palyra.wire.worker.v1 import worker_pb2
from palyra.wire.worker.v1.worker_pb2_grpc import EgressServiceStub

_MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_OPTIONS: Final = (
    ("grpc.ssl_target_name_override", SERVER_NAME),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    # Each link has a connection of its own: a new certificate is not shown on an old one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
)
_REFUSALS: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class EgressCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies this proxy, and what it trusts."""

    device_id: str
    key_pem: Secret
    certificate_pem: str
    ca_bundle_pem: str


class NewCertificate(msgspec.Struct, frozen=True, kw_only=True):
    certificate_pem: str
    ca_bundle_pem: str
    generation: int


class LinkRefused(DaemonLinkLost):
    code = "worker_egress.daemon_refused"
    hint = "the daemon no longer takes this proxy (revoked, locked, or paired anew elsewhere): ask the operator"


class DaemonLink:
    """Made for one address and one certificate. Every method may be called again after it failed."""

    def __init__(self, address: str, credentials: EgressCredentials) -> None:
        self.address = address
        self._device_id = credentials.device_id
        self._channel = grpc.aio.secure_channel(
            address,
            grpc.ssl_channel_credentials(
                root_certificates=credentials.ca_bundle_pem.encode(),
                private_key=credentials.key_pem.reveal().encode(),
                certificate_chain=credentials.certificate_pem.encode(),
            ),
            options=_OPTIONS,
        )
        self._leases: Any = LeaseGrantServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._egress: Any = EgressServiceStub(self._channel)  # type: ignore[no-untyped-call]

    async def follow(self, heard: Callable[[Orders], None]) -> None:
        """Until the stream ends, which raises. The first orders are the whole list."""
        request = egress_pb2.FollowLeasesRequest(device_id=self._device_id)
        call = self._leases.FollowLeases(request)
        try:
            async for message in call:
                heard(_orders(message))
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from None
        except asyncio.CancelledError:
            _raise_if_ours(call)
        raise DaemonLinkLost("the daemon ended the stream of leases")

    async def report(self, reports: AsyncIterator[Spooled], answered: Callable[[int, str], None]) -> None:
        """Sends what the iterator gives, until the stream ends, which raises. ``answered`` gets number and code."""
        call = self._egress.ReportViolations(self._sent(reports))
        try:
            async for receipt in call:
                answered(receipt.sequence, receipt.code)
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from None
        except asyncio.CancelledError:
            _raise_if_ours(call)
        raise DaemonLinkLost("the daemon ended the stream of reports")

    async def renew(self, csr_der: bytes, generation: int) -> NewCertificate:
        request = worker_pb2.RenewCertificateRequest(device_id=self._device_id, csr_der=csr_der, generation=generation)
        try:
            answer = await self._egress.RenewCertificate(request, timeout=limits.CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _lost(error) from None
        return NewCertificate(
            certificate_pem=answer.certificate_pem.decode("ascii", "replace"),
            ca_bundle_pem=answer.ca_bundle_pem.decode("ascii", "replace"),
            generation=answer.generation,
        )

    async def close(self) -> None:
        await self._channel.close()

    async def _sent(self, reports: AsyncIterator[Spooled]) -> AsyncIterator[Any]:
        async for each in reports:
            seen = each.violation
            yield worker_pb2.ViolationReport(
                device_id=self._device_id,
                sequence=each.sequence,
                worker_id=seen.worker_id,
                lease_id=seen.lease_id,
                code=seen.code,
                host=seen.host,
                port=seen.port,
                seen_ms=seen.seen_ms,
            )


def _orders(message: Any) -> Orders:
    grants = (
        LeaseGrant(
            worker_id=each.worker_id,
            lease_id=each.lease_id,
            fence=each.fence,
            run_id=each.run_id,
            call_id=each.call_id,
            principal=each.principal,
            tool=each.tool,
            hosts=tuple(each.hosts),
            max_bytes=each.max_bytes,
            max_tunnels=each.max_tunnels,
            timeout_ms=each.timeout_ms,
        )
        for each in message.granted
    )
    return Orders(
        whole=message.whole,
        still_open=tuple(LeaseRef(each.lease_id, each.fence) for each in message.still_open),
        granted=tuple(grant for grant in grants if is_sound(grant)),
        ended=tuple(LeaseRef(each.lease_id, each.fence) for each in message.ended),
        ca_bundle_pem=message.ca_bundle_pem.decode("ascii", "replace"),
    )


def _raise_if_ours(call: Any) -> None:
    """A channel that was closed cancels its calls; whoever cancels us wants to be obeyed."""
    call.cancel()
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _lost(error: grpc.aio.AioRpcError) -> DaemonLinkLost:
    code = error.code()
    kind = LinkRefused if code in _REFUSALS else DaemonLinkLost
    return kind(f"{code.name.lower()}: {(error.details() or '')[:200]}")
