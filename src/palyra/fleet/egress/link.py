"""The proxy's connection to the daemon: the daemon's orders about leases, and the proxy's reports of violations."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
import msgspec

from palyra.devicelink.agent.channel import describe_failure, is_cancelling, open_channel, read_renewal
from palyra.devicelink.agent.identity import Credentials, Renewed
from palyra.fleet import limits
from palyra.fleet.egress.leases import DaemonLinkLost, LeaseGrant, LeaseRef, Orders, is_sound
from palyra.fleet.egress.violations import Spooled
from palyra.wire.egress.v1 import egress_pb2
from palyra.wire.egress.v1.egress_pb2_grpc import LeaseGrantServiceStub
from palyra.wire.worker.v1 import worker_pb2
from palyra.wire.worker.v1.worker_pb2_grpc import EgressServiceStub

_REFUSALS: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class LinkRefused(DaemonLinkLost):
    code = "worker_egress.daemon_refused"
    hint = "the daemon no longer takes this proxy (revoked, locked, or paired again elsewhere): ask the operator"


class DaemonLink:
    """Made for one address and one certificate. Every method may be called again after it failed."""

    def __init__(self, address: str, device_id: str, credentials: Credentials) -> None:
        self._device_id = device_id
        self._channel = open_channel(
            address,
            credentials,
            max_receive_message_length=limits.MAX_ORDERS_MESSAGE_BYTES,
            keepalive_time_ms=30_000,
            keepalive_timeout_ms=10_000,
            max_reconnect_backoff_ms=2_000,
            initial_reconnect_backoff_ms=200,
        )
        self._leases: Any = LeaseGrantServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._egress: Any = EgressServiceStub(self._channel)  # type: ignore[no-untyped-call]

    async def follow(self, on_orders: Callable[[Orders], None]) -> None:
        """Receive orders until the stream ends, which raises. The first orders are the whole list."""
        call = self._leases.FollowLeases(egress_pb2.FollowLeasesRequest(device_id=self._device_id))
        await _consume(call, lambda message: on_orders(_read_orders(message)))
        raise DaemonLinkLost("the daemon ended the stream of leases")

    async def report(self, reports: AsyncIterator[Spooled], on_receipt: Callable[[int, str], None]) -> None:
        """Send reports until the stream ends, which raises. ``on_receipt`` gets a report's number and a code."""
        call = self._egress.ReportViolations(self._to_wire(reports))
        await _consume(call, lambda receipt: on_receipt(receipt.sequence, receipt.code))
        raise DaemonLinkLost("the daemon ended the stream of reports")

    async def renew(self, csr_der: bytes, generation: int) -> Renewed:
        request = worker_pb2.RenewCertificateRequest(device_id=self._device_id, csr_der=csr_der, generation=generation)
        try:
            return read_renewal(await self._egress.RenewCertificate(request, timeout=limits.CALL_SECONDS))
        except grpc.aio.AioRpcError as error:
            raise _to_lost(error) from None

    async def close(self) -> None:
        await self._channel.close()

    async def _to_wire(self, reports: AsyncIterator[Spooled]) -> AsyncIterator[Any]:
        async for each in reports:
            violation = msgspec.structs.asdict(each.violation)
            yield worker_pb2.ViolationReport(device_id=self._device_id, sequence=each.sequence, **violation)


async def _consume(call: Any, on_message: Callable[[Any], None]) -> None:
    try:
        async for message in call:
            on_message(message)
    except grpc.aio.AioRpcError as error:
        raise _to_lost(error) from None
    except asyncio.CancelledError:
        call.cancel()
        if is_cancelling():
            raise


def _read_orders(message: Any) -> Orders:
    grants = map(_read_grant, message.granted)
    return Orders(
        whole=message.whole,
        still_open=tuple(LeaseRef(each.lease_id, each.fence) for each in message.still_open),
        granted=tuple(grant for grant in grants if is_sound(grant)),
        ended=tuple(LeaseRef(each.lease_id, each.fence) for each in message.ended),
        ca_bundle_pem=message.ca_bundle_pem.decode("ascii", "replace"),
    )


def _read_grant(sent: Any) -> LeaseGrant:
    fields = {name: getattr(sent, name) for name in LeaseGrant.__struct_fields__}
    return LeaseGrant(**{**fields, "hosts": tuple(sent.hosts)})


def _to_lost(error: grpc.aio.AioRpcError) -> DaemonLinkLost:
    kind = LinkRefused if error.code() in _REFUSALS else DaemonLinkLost
    return kind(describe_failure(error))
