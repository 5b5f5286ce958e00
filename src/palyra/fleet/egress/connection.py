"""A worker's egress proxy and its daemon: one connection, tried again when lost; its certificate renews itself."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.backoff import Backoff
from palyra.devicelink.agent.device_folder import DeviceRecord, NotPaired, PairingFolder
from palyra.devicelink.agent.identity import certificate_request, held_certificate, require_own
from palyra.errors import PalyraError
from palyra.fleet.egress.leases import DaemonLinkLost, Orders
from palyra.fleet.egress.link import DaemonLink, EgressCredentials
from palyra.fleet.egress.proxy import WorkerEgress

log = logging.getLogger("palyra.egress")
# How often the certificate's age is looked at: clocks may be set meanwhile.
RENEWAL_CHECK_SECONDS: Final = 30.0


class EgressLink:
    """Two streams, each begun again by itself. A daemon that is away, or refuses us, changes nothing for the doors."""

    def __init__(
        self,
        folder: PairingFolder,
        record: DeviceRecord,
        egress: WorkerEgress,
        *,
        clock: Clock,
        draw: Callable[[], float],
    ) -> None:
        if not record.paired or not record.servers:
            raise NotPaired("this egress proxy is not paired")
        self._folder = folder
        self._record = record
        self._egress = egress
        self._clock = clock
        self._draw = draw
        self._server = 0
        self._renew_now = asyncio.Event()
        self.online = asyncio.Event()
        self._link = self._made()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._again(self._follow), name="leases")
                group.create_task(self._again(self._report), name="reports")
                group.create_task(self._renewing(), name="renewal")
        finally:
            await self._link.close()

    async def _follow(self, link: DaemonLink) -> None:
        try:
            await link.follow(self._heard)
        finally:
            self.online.clear()

    async def _report(self, link: DaemonLink) -> None:
        reports = self._egress.reports
        await link.report(reports.waiting(), reports.answered)

    def _heard(self, orders: Orders) -> None:
        self._egress.heard(orders)
        self.online.set()
        if orders.ca_bundle_pem and orders.ca_bundle_pem != self._record.ca_bundle_pem:
            self._keep(msgspec.structs.replace(self._record, ca_bundle_pem=orders.ca_bundle_pem))
            self._renew_now.set()

    async def _again(self, work: Callable[[DaemonLink], Awaitable[None]]) -> None:
        backoff = Backoff()
        while True:
            link, began, why = self._link, self._clock.monotonic(), ""
            try:
                await work(link)
            except DaemonLinkLost as lost:
                why = lost.message
            if link is not self._link:
                continue
            # One that held for a while was good: the next try is soon.
            if self._clock.monotonic() - began > RENEWAL_CHECK_SECONDS:
                backoff = Backoff()
            backoff = backoff.failed()
            log.warning("no connection to the daemon: %s", why)
            await asyncio.sleep(backoff.delay_ms(self._draw()) / MS_PER_SECOND)
            if link is self._link and len(self._record.servers) > 1:
                self._server += 1
                await self._exchange()

    async def _renewing(self) -> None:
        backoff = Backoff()
        while True:
            held = held_certificate(self._record.certificate_pem, self._record.generation)
            if self._clock.now_ms() >= held.renew_at_ms or self._renew_now.is_set():
                try:
                    await self._renew()
                    backoff = Backoff()
                    continue
                except PalyraError as error:
                    log.warning("the certificate could not be renewed: %s", error.message)
                    backoff = backoff.failed()
                    await asyncio.sleep(backoff.delay_ms(self._draw()) / MS_PER_SECOND)
                    continue
            try:
                async with asyncio.timeout(RENEWAL_CHECK_SECONDS):
                    await self._renew_now.wait()
            except TimeoutError:
                continue

    async def _renew(self) -> None:
        """For the same key: bindings that were signed with it stay good."""
        record = self._record
        assert record.key_pem is not None
        answer = await self._link.renew(certificate_request(record.key_pem), record.generation)
        require_own(answer.certificate_pem, record.key_pem)
        self._renew_now.clear()
        self._keep(
            msgspec.structs.replace(
                record,
                certificate_pem=answer.certificate_pem,
                ca_bundle_pem=answer.ca_bundle_pem,
                generation=answer.generation,
            )
        )
        await self._exchange()

    def _keep(self, record: DeviceRecord) -> None:
        self._record = record
        self._folder.save(record)

    async def _exchange(self) -> None:
        """A new link, and then the end of the old one: both streams begin again on the new one."""
        old, self._link = self._link, self._made()
        await old.close()

    def _made(self) -> DaemonLink:
        record = self._record
        assert record.key_pem is not None
        credentials = EgressCredentials(
            device_id=record.device_id,
            key_pem=record.key_pem,
            certificate_pem=record.certificate_pem,
            ca_bundle_pem=record.ca_bundle_pem,
        )
        return DaemonLink(record.servers[self._server % len(record.servers)], credentials)
