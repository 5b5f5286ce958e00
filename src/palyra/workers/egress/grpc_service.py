"""The daemon's service for what egress proxies report: on record, and the worker quarantined, before it is answered."""

import re
from collections.abc import AsyncIterator, Collection
from typing import Any, Final, NoReturn, Protocol

import grpc

from palyra.errors import Denied, PalyraError
from palyra.identity.device import DeviceKind, actor_of
from palyra.identity.records import IssuedCertificate, PeerIdentity
from palyra.wire.worker.v1 import worker_pb2
from palyra.wire.worker.v1.worker_pb2_grpc import EgressServiceServicer
from palyra.workers.commands import FleetCommand, ReportViolation
from palyra.workers.decision import FleetDecision

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
