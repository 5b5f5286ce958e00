"""The daemon's service for what egress proxies report: on record, and the worker quarantined, before it is answered."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, Final, NoReturn, Protocol

import grpc

from palyra.errors import Denied, PalyraError
from palyra.fleet import limits
from palyra.fleet.domain.commands import FleetCommand, FleetDecision, ReportViolation
from palyra.fleet.egress.leases import LeaseGrant, LeaseRef, Orders
from palyra.fleet.server.lease_grants import LeaseGrants
from palyra.identity.device import DeviceKind, actor_of
from palyra.identity.records import IssuedCertificate, PeerIdentity
from palyra.wire.egress.v1 import egress_pb2
from palyra.wire.egress.v1.egress_pb2_grpc import LeaseGrantServiceServicer
from palyra.wire.worker.v1 import worker_pb2
from palyra.wire.worker.v1.worker_pb2_grpc import EgressServiceServicer

PROXIES: Final = (DeviceKind.EGRESS,)
_REPORT: Final = "ReportViolations"
_RENEW: Final = "RenewCertificate"
_CODE: Final = re.compile(r"egress\.[a-z_]{1,48}")
_HOST: Final = re.compile(r"[0-9a-z.:_-]{0,253}")
_ID: Final = re.compile(r"[0-9A-Z]{26}")
# What a report of a stranger's making is called: it counts, in our words and not in its.
_UNNAMED: Final = "egress.unnamed_violation"


class Renewals(Protocol):
    async def used(self, peer: PeerIdentity) -> None: ...

    async def renew(self, peer: PeerIdentity, csr_der: bytes, generation: int) -> IssuedCertificate: ...


class Gate(Protocol):
    """The gate of the listener for devices."""

    @property
    def identities(self) -> Renewals: ...

    async def fingerprint(self, context: Any, method: str) -> str: ...

    async def admit_message(
        self, context: Any, fingerprint: str, kinds: Collection[DeviceKind], claimed: str, method: str
    ) -> PeerIdentity: ...

    async def admit_renewal(
        self, context: Any, kinds: Collection[DeviceKind], claimed: str, method: str
    ) -> PeerIdentity: ...

    async def refuse(self, context: Any, refusal: PalyraError, method: str, fingerprint: str = "") -> NoReturn: ...


class Decides(Protocol):
    """The fleet's ledger, or whoever stands before it and does what its decisions say."""

    async def decide(self, command: FleetCommand) -> FleetDecision:
        """Raises a refusal once that is on disk."""


class EgressService(EgressServiceServicer):
    def __init__(self, gate: Gate, fleet: Decides) -> None:
        self._gate = gate
        self._fleet = fleet

    async def ReportViolations(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        fingerprint = await self._gate.fingerprint(context, _REPORT)
        known = False
        async for report in requests:
            peer = await self._gate.admit_message(context, fingerprint, PROXIES, report.device_id, _REPORT)
            if not known:
                await self._gate.identities.used(peer)
                known = True
            code = await self._noted(peer, report)
            yield worker_pb2.ViolationReceipt(sequence=report.sequence, code=code)

    async def _noted(self, peer: PeerIdentity, report: Any) -> str:
        command = ReportViolation(
            actor=actor_of(peer.kind, peer.device_id),
            worker_id=report.worker_id if _ID.fullmatch(report.worker_id) else "",
            egress_id=str(peer.device_id),
            violation=violation_text(report.code, report.host, report.port, report.lease_id),
        )
        try:
            await self._fleet.decide(command)
        except PalyraError as refusal:
            return refusal.code
        return ""

    async def RenewCertificate(self, request: Any, context: Any) -> Any:  # noqa: N802
        peer = await self._gate.admit_renewal(context, PROXIES, request.device_id, _RENEW)
        try:
            issued = await self._gate.identities.renew(peer, request.csr_der, request.generation)
        except Denied as refusal:
            await self._gate.refuse(context, refusal, _RENEW, peer.fingerprint)
        except PalyraError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{error.code}: {error.message}")
            raise AssertionError("abort does not return") from error
        return worker_pb2.RenewCertificateResponse(
            certificate_pem=issued.certificate_pem, ca_bundle_pem=issued.ca_bundle_pem, generation=issued.generation
        )


def violation_text(code: str, host: str, port: int, lease_id: str) -> str:
    """For the journal: what is not in the shape of its field is left out, and the report counts all the same."""
    said = code if _CODE.fullmatch(code) else _UNNAMED
    if host and _HOST.fullmatch(host):
        said += f" {host}:{port}" if 0 < port < 65_536 else f" {host}"
    return f"{said} lease {lease_id}" if _ID.fullmatch(lease_id) else said


# The daemon's service for egress proxies: each follows the leases of the workers that are bound to it.

_FOLLOW = "FollowLeases"


class Authorities(Protocol):
    async def used(self, peer: PeerIdentity) -> None: ...

    def ca_bundle_pem(self) -> bytes: ...


class LeaseGate(Protocol):
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

    def __init__(self, gate: LeaseGate, desk: LeaseGrants, open_leases: OpenLeases) -> None:
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
