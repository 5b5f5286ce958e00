"""The daemon's services for egress proxies: the orders about leases, and the reports of violations."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import grpc
import msgspec

from palyra.devicelink.server.gate import PeerGate
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.domain.commands import FleetCommand, FleetDecision, ReportViolation
from palyra.fleet.egress.leases import LeaseRef, Orders
from palyra.fleet.server.lease_grants import LeaseGrants
from palyra.identity.device import DeviceKind, actor_of
from palyra.identity.records import PeerIdentity
from palyra.wire.egress.v1 import egress_pb2
from palyra.wire.egress.v1.egress_pb2_grpc import LeaseGrantServiceServicer
from palyra.wire.worker.v1 import worker_pb2
from palyra.wire.worker.v1.worker_pb2_grpc import EgressServiceServicer

PROXIES: Final = (DeviceKind.EGRESS,)
_FOLLOW: Final = "FollowLeases"
_REPORT: Final = "ReportViolations"
_RENEW: Final = "RenewCertificate"
_CODE: Final = re.compile(r"egress\.[a-z_]{1,48}")
_HOST: Final = re.compile(r"[0-9a-z.:_-]{0,253}")
_ID: Final = re.compile(r"[0-9A-Z]{26}")
# The code of a report whose own code is malformed: the report counts all the same.
_UNNAMED: Final = "egress.unnamed_violation"


@dataclass(eq=False)
class EgressService(EgressServiceServicer):
    """Takes reports. The worker is in quarantine and the report in the journal before the answer."""

    gate: PeerGate
    # Decides a command, on disk, and raises its refusal.
    decide: Callable[[FleetCommand], Awaitable[FleetDecision]]

    async def ReportViolations(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        fingerprint = await self.gate.fingerprint(context, _REPORT)
        known = False
        async for report in requests:
            peer = await self.gate.admit_message(context, fingerprint, PROXIES, report.device_id, _REPORT)
            if not known:
                await self.gate.identities.used(peer)
                known = True
            code = await self._record(peer, report)
            yield worker_pb2.ViolationReceipt(sequence=report.sequence, code=code)

    async def _record(self, peer: PeerIdentity, report: Any) -> str:
        command = ReportViolation(
            actor=actor_of(peer.kind, peer.device_id),
            worker_id=report.worker_id if _ID.fullmatch(report.worker_id) else "",
            egress_id=str(peer.device_id),
            violation=violation_text(report.code, report.host, report.port, report.lease_id),
        )
        try:
            await self.decide(command)
        except PalyraError as refusal:
            return refusal.code
        return ""

    async def RenewCertificate(self, request: Any, context: Any) -> Any:  # noqa: N802
        status = grpc.StatusCode.FAILED_PRECONDITION
        renewed = await self.gate.renew_certificate(context, PROXIES, request, _RENEW, status)
        return worker_pb2.RenewCertificateResponse(**renewed)


def violation_text(code: str, host: str, port: int, lease_id: str) -> str:
    """Describe a violation for the journal. A malformed field is left out, and the report counts all the same."""
    text = code if _CODE.fullmatch(code) else _UNNAMED
    if host and _HOST.fullmatch(host):
        text += f" {host}:{port}" if 0 < port < 65_536 else f" {host}"
    return f"{text} lease {lease_id}" if _ID.fullmatch(lease_id) else text


@dataclass(eq=False)
class LeaseGrantService(LeaseGrantServiceServicer):
    """Sends each proxy the grants of its workers' leases. ``open_leases`` gives those of a proxy from the ledger."""

    gate: PeerGate
    grants: LeaseGrants
    open_leases: Callable[[str], Iterable[LeaseRef]]

    async def FollowLeases(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        fingerprint = await self.gate.fingerprint(context, _FOLLOW)
        peer = await self.gate.admit_message(context, fingerprint, PROXIES, request.device_id, _FOLLOW)
        await self.gate.identities.used(peer)
        egress_id = str(peer.device_id)
        whole, queue = self.grants.attach(egress_id, self.open_leases(egress_id))
        # One event for each proxy, so that a change does not wake a thousand others.
        changed = asyncio.Event()
        queue.changed = changed.set
        bundle = b""
        orders: Orders | None = whole
        try:
            while self.grants.is_followed_by(egress_id, queue) and not queue.overrun:
                # A proxy that was revoked, locked or superseded is cut even if there is nothing to send.
                await self.gate.admit_message(context, fingerprint, PROXIES, request.device_id, _FOLLOW)
                sent, bundle = bundle, self.gate.identities.ca_bundle_pem()
                if orders is not None or bundle != sent:
                    yield _to_message(orders or Orders(), bundle if bundle != sent else b"")
                changed.clear()
                orders = queue.take()
                if orders is None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(limits.RECHECK_SECONDS):
                            await changed.wait()
                    orders = queue.take()
        finally:
            self.grants.detach(egress_id, queue)


def _to_message(orders: Orders, bundle: bytes) -> Any:
    fields = msgspec.structs.asdict
    return egress_pb2.LeaseOrders(
        whole=orders.whole,
        still_open=[egress_pb2.LeaseRef(**fields(each)) for each in orders.still_open],
        granted=[egress_pb2.LeaseGrant(**fields(each)) for each in orders.granted],
        ended=[egress_pb2.LeaseRef(**fields(each)) for each in orders.ended],
        ca_bundle_pem=bundle,
    )
