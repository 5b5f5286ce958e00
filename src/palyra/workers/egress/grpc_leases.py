"""The daemon's service for egress proxies: each follows the leases of the workers that are bound to it."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, Protocol

from palyra.identity.device import DeviceKind
from palyra.identity.records import PeerIdentity
from palyra.wire.egress.v1 import egress_pb2
from palyra.wire.egress.v1.egress_pb2_grpc import LeaseGrantServiceServicer
from palyra.workers.egress import limits
from palyra.workers.egress.lease_book import LeaseRef
from palyra.workers.egress.lease_desk import LeaseDesk
from palyra.workers.egress.lease_grant import LeaseGrant
from palyra.workers.egress.order_messages import Orders

PROXIES = (DeviceKind.EGRESS,)
_FOLLOW = "FollowLeases"


class Authorities(Protocol):
    async def used(self, peer: PeerIdentity) -> None: ...

    def ca_bundle_pem(self) -> bytes: ...


class Gate(Protocol):
    """The gate of the listener for devices."""

    @property
    def identities(self) -> Authorities: ...

    async def fingerprint(self, context: Any, method: str) -> str: ...

    async def admit_message(
        self, context: Any, fingerprint: str, kinds: Collection[DeviceKind], claimed: str, method: str
    ) -> PeerIdentity: ...


class OpenLeases(Protocol):
    def __call__(self, egress_id: str) -> Iterable[LeaseRef]:
        """The leases that the ledger has open, of workers bound to this proxy."""


class LeaseGrantService(LeaseGrantServiceServicer):
    """The daemon gives ``desk`` every lease before it is offered and when it ends."""

    def __init__(self, gate: Gate, desk: LeaseDesk, open_leases: OpenLeases) -> None:
        self._gate = gate
        self._desk = desk
        self._open_leases = open_leases

    async def FollowLeases(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        fingerprint = await self._gate.fingerprint(context, _FOLLOW)
        peer = await self._gate.admit_message(context, fingerprint, PROXIES, request.device_id, _FOLLOW)
        await self._gate.identities.used(peer)
        egress_id = str(peer.device_id)
        whole, queue = self._desk.attach(egress_id, self._open_leases(egress_id))
        # Its own: what one proxy is told is no news for a thousand others.
        news = asyncio.Event()
        queue.changed = news.set
        bundle = b""
        orders: Orders | None = whole
        try:
            while self._desk.is_followed_by(egress_id, queue) and not queue.overrun:
                # Revoked, locked or superseded meanwhile: cut, whether there is anything to say or not.
                await self._gate.admit_message(context, fingerprint, PROXIES, request.device_id, _FOLLOW)
                told, bundle = bundle, self._gate.identities.ca_bundle_pem()
                if orders is not None or bundle != told:
                    yield _message(orders or Orders(), bundle if bundle != told else b"")
                news.clear()
                orders = queue.take()
                if orders is None:
                    await _wait(news)
                    orders = queue.take()
        finally:
            self._desk.detach(egress_id, queue)


async def _wait(news: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(limits.RECHECK_SECONDS):
            await news.wait()
    except TimeoutError:
        return


def _message(orders: Orders, bundle: bytes) -> Any:
    return egress_pb2.LeaseOrders(
        whole=orders.whole,
        still_open=[_ref(each) for each in orders.still_open],
        granted=[_grant(each) for each in orders.granted],
        ended=[_ref(each) for each in orders.ended],
        ca_bundle_pem=bundle,
    )


def _ref(ref: LeaseRef) -> Any:
    return egress_pb2.LeaseRef(lease_id=ref.lease_id, fence=ref.fence)


def _grant(grant: LeaseGrant) -> Any:
    return egress_pb2.LeaseGrant(
        worker_id=grant.worker_id,
        lease_id=grant.lease_id,
        fence=grant.fence,
        run_id=grant.run_id,
        call_id=grant.call_id,
        principal=grant.principal,
        tool=grant.tool,
        hosts=grant.hosts,
        max_bytes=grant.max_bytes,
        max_tunnels=grant.max_tunnels,
        timeout_ms=grant.timeout_ms,
    )
