"""The link of a worker's egress proxy to its daemon. It reconnects after a loss and renews its own certificate."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import grpc
import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.backoff import Backoff
from palyra.devicelink.agent.channel import (
    describe_failure,
    is_cancelling,
    open_channel,
    read_renewal,
    wait_for_renewal,
)
from palyra.devicelink.agent.device_folder import DeviceRecord, NotPaired, PairingFolder
from palyra.devicelink.agent.identity import (
    Credentials,
    Renewed,
    certificate_request,
    read_held_certificate,
    require_own,
)
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.egress.leases import DaemonLinkLost, LeaseGrant, LeaseRef, Orders, is_sound
from palyra.fleet.egress.proxy import WorkerEgress
from palyra.fleet.egress.violations import Spooled
from palyra.wire.egress.v1 import egress_pb2
from palyra.wire.egress.v1.egress_pb2_grpc import LeaseGrantServiceStub
from palyra.wire.worker.v1 import worker_pb2
from palyra.wire.worker.v1.worker_pb2_grpc import EgressServiceStub

log = logging.getLogger("palyra.egress")
# A connection that lasted this long was good: the next try is soon.
_GOOD_SECONDS: Final = 30.0


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


@dataclass(eq=False)
class EgressLink:
    """Two streams, each reconnected by itself. A daemon that is away or refuses this proxy leaves listeners open."""

    folder: PairingFolder
    record: DeviceRecord
    egress: WorkerEgress
    _: KW_ONLY
    clock: Clock
    draw: Callable[[], float]

    def __post_init__(self) -> None:
        if not self.record.paired or not self.record.servers:
            raise NotPaired("this egress proxy is not paired")
        self._server = 0
        self._renew_now = asyncio.Event()
        self.online = asyncio.Event()
        self._link = self._make_link()

    async def run(self) -> None:
        """Serve until the task is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reconnect(self._follow), name="leases")
                group.create_task(self._reconnect(self._report), name="reports")
                group.create_task(self._renew_when_due(), name="renewal")
        finally:
            await self._link.close()

    async def _follow(self, link: DaemonLink) -> None:
        try:
            await link.follow(self._on_orders)
        finally:
            self.online.clear()

    async def _report(self, link: DaemonLink) -> None:
        reports = self.egress.reports
        await link.report(reports.unacknowledged(), reports.on_receipt)

    def _on_orders(self, orders: Orders) -> None:
        self.egress.apply(orders)
        self.online.set()
        if orders.ca_bundle_pem and orders.ca_bundle_pem != self.record.ca_bundle_pem:
            self._save(ca_bundle_pem=orders.ca_bundle_pem)
            self._renew_now.set()

    async def _reconnect(self, work: Callable[[DaemonLink], Awaitable[None]]) -> None:
        backoff = Backoff()
        while True:
            link, began, why = self._link, self.clock.monotonic(), ""
            try:
                await work(link)
            except DaemonLinkLost as lost:
                why = lost.message
            if link is not self._link:
                continue
            if self.clock.monotonic() - began > _GOOD_SECONDS:
                backoff = Backoff()
            backoff = backoff.failed()
            log.warning("no connection to the daemon: %s", why)
            await asyncio.sleep(backoff.delay_ms(self.draw()) / MS_PER_SECOND)
            if link is self._link and len(self.record.servers) > 1:
                self._server += 1
                await self._replace_link()

    async def _renew_when_due(self) -> None:
        backoff = Backoff()
        while True:
            held = read_held_certificate(self.record.certificate_pem, self.record.generation)
            await wait_for_renewal(held.renew_at_ms, self._renew_now, self.clock)
            try:
                await self._renew()
                backoff = Backoff()
            except PalyraError as error:
                log.warning("the certificate could not be renewed: %s", error.message)
                backoff = backoff.failed()
                await asyncio.sleep(backoff.delay_ms(self.draw()) / MS_PER_SECOND)

    async def _renew(self) -> None:
        """Renew the certificate for the same key, so that bindings signed with it stay valid."""
        record = self.record
        assert record.key_pem is not None
        renewed = await self._link.renew(certificate_request(record.key_pem), record.generation)
        require_own(renewed.certificate_pem, record.key_pem)
        self._renew_now.clear()
        self._save(
            certificate_pem=renewed.certificate_pem,
            ca_bundle_pem=renewed.ca_bundle_pem,
            generation=renewed.generation,
        )
        await self._replace_link()

    def _save(self, **changes: str | int) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        self.folder.save(self.record)

    async def _replace_link(self) -> None:
        """Make a new link, then close the old one. Both streams continue on the new link."""
        old, self._link = self._link, self._make_link()
        await old.close()

    def _make_link(self) -> DaemonLink:
        record = self.record
        assert record.key_pem is not None
        credentials = Credentials(
            key_pem=record.key_pem, certificate_pem=record.certificate_pem, ca_bundle_pem=record.ca_bundle_pem
        )
        return DaemonLink(record.servers[self._server % len(record.servers)], record.device_id, credentials)
