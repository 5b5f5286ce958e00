"""What proxies report over real TLS: taken from egress identities only, and on record before it is answered."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.egress_fleet import EgressFleet, egress_fleet
from fakes.fleet_peers import WORKER
from palyra.errors import PalyraError
from palyra.fleet.domain.attestation import EgressBinding
from palyra.fleet.domain.signed_statement import sign_statement
from palyra.fleet.domain.worker import WorkerLifecycleState as State
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.server.egress_rpc import violation_text
from palyra.identity.device import DeviceKind
from palyra.signing.p256 import P256Signer
from palyra.wire.worker.v1 import worker_pb2
from palyra.wire.worker.v1.worker_pb2_grpc import EgressServiceStub

POLICY = WorkerEgressPolicy.of({"allowed_hosts": ["a.example"]})


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[EgressFleet]:
    async with egress_fleet(tmp_path, POLICY) as made:
        yield made


def stub(fleet: EgressFleet, device: Any) -> Any:
    device.connect(fleet.port)
    return EgressServiceStub(device.channels[-1])


async def bound(fleet: EgressFleet, device: Any) -> None:
    """The worker attested, bound to this proxy."""
    worker = await fleet.connect()
    now = fleet.nodes.clock.now_ms()
    binding = EgressBinding(
        egress_id=str(device.device_id),
        worker_id=WORKER,
        policy_digest_sha256=POLICY.digest(),
        nonce=worker.nonce,
        issued_ms=now,
        expires_ms=now + 60_000,
    )
    signed = sign_statement(binding, P256Signer.from_pem(device.key.pem()))
    await fleet.attest(worker, device, signed)


def report(device: Any, sequence: int = 1, **changes: Any) -> worker_pb2.ViolationReport:
    fields: dict[str, Any] = {
        "device_id": str(device.device_id),
        "sequence": sequence,
        "worker_id": WORKER,
        "lease_id": f"{7:026d}",
        "code": "egress.host_not_allowed",
        "host": "evil.example",
        "port": 443,
        "seen_ms": 5,
    }
    return worker_pb2.ViolationReport(**{**fields, **changes})


async def test_a_report_quarantines_before_it_is_answered(fleet: EgressFleet) -> None:
    device = await fleet.pair()
    await bound(fleet, device)
    call = stub(fleet, device).ReportViolations(iter([report(device, 41)]))
    receipts = [each async for each in call]
    assert [(each.sequence, each.code) for each in receipts] == [(41, "")]
    assert fleet.ledger.worker(WORKER).state is State.QUARANTINED
    (event,) = fleet.events("worker.violation_reported")
    assert event["violation"] == f"egress.host_not_allowed evil.example:443 lease {7:026d}"


async def test_who_is_not_believed_is_told_so_and_the_stream_goes_on(fleet: EgressFleet) -> None:
    device, stranger = await fleet.pair(), await fleet.pair()
    await bound(fleet, device)
    reports = [report(stranger, 1), report(stranger, 2, worker_id=f"{9:026d}"), report(stranger, 3, worker_id="x'--")]
    codes = [each.code async for each in stub(fleet, stranger).ReportViolations(iter(reports))]
    assert codes[:2] == ["worker.foreign_egress", "worker.unknown"] and codes[2]
    assert fleet.ledger.worker(WORKER).state is State.AVAILABLE
    await device.channels[-1].close() if device.channels else None


@pytest.mark.parametrize("kind", [DeviceKind.WORKER, DeviceKind.NODE])
async def test_other_kinds_of_devices_are_refused(fleet: EgressFleet, kind: DeviceKind) -> None:
    other = await fleet.nodes.pair("not a proxy", kind)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        _ = [each async for each in stub(fleet, other).ReportViolations(iter([report(other)]))]
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "nodes.wrong_kind" in fleet.nodes.refused


async def test_a_proxy_speaks_for_itself_and_not_after_it_was_revoked(fleet: EgressFleet) -> None:
    device, other = await fleet.pair(), await fleet.pair()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        _ = [each async for each in stub(fleet, device).ReportViolations(iter([report(other)]))]
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await fleet.nodes.identities.revoke(device.device_id, reason="test", actor="user:operator")
    with pytest.raises(grpc.aio.AioRpcError) as revoked:
        _ = [each async for each in stub(fleet, device).ReportViolations(iter([report(device)]))]
    assert revoked.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_certificate_is_renewed_and_a_stale_generation_is_not(fleet: EgressFleet) -> None:
    device = await fleet.pair()
    request = worker_pb2.RenewCertificateRequest(
        device_id=str(device.device_id), csr_der=device.key.csr(), generation=device.issued.generation
    )
    answer = await stub(fleet, device).RenewCertificate(request, timeout=30)
    assert answer.generation == device.issued.generation + 1 and b"BEGIN CERTIFICATE" in answer.certificate_pem
    request.csr_der = b"nonsense"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub(fleet, device).RenewCertificate(request, timeout=30)
    assert refused.value.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED)


def test_a_strangers_words_do_not_reach_the_journal() -> None:
    lease = f"{7:026d}"
    assert violation_text("egress.x", "a.example", 0, lease) == f"egress.x a.example lease {lease}"
    assert violation_text("<script>", "a\nb", 70_000, "../..") == "egress.unnamed_violation"
    assert violation_text("egress.x", "::1", 22, "") == "egress.x ::1:22"
    assert issubclass(PalyraError, Exception)
