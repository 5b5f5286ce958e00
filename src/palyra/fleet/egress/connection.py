"""The link of a worker's egress proxy to its daemon. It reconnects after a loss and renews its own certificate."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.backoff import Backoff
from palyra.devicelink.agent.channel import wait_for_renewal
from palyra.devicelink.agent.device_folder import DeviceRecord, NotPaired, PairingFolder
from palyra.devicelink.agent.identity import Credentials, certificate_request, read_held_certificate, require_own
from palyra.errors import PalyraError
from palyra.fleet.egress.leases import DaemonLinkLost, Orders
from palyra.fleet.egress.link import DaemonLink
from palyra.fleet.egress.proxy import WorkerEgress

log = logging.getLogger("palyra.egress")
# A connection that lasted this long was good: the next try is soon.
_GOOD_SECONDS: Final = 30.0


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
