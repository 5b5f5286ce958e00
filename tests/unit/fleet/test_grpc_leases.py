"""Leases followed over real TLS: the whole list, what changes, one follower, and none that may not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.egress_fleet import EgressFleet, egress_fleet
from fakes.eventually import eventually
from palyra.fleet import limits
from palyra.fleet.egress.leases import LeaseGrant
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.identity.device import DeviceKind
from palyra.wire.egress.v1 import egress_pb2
from palyra.wire.egress.v1.egress_pb2_grpc import LeaseGrantServiceStub


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[EgressFleet]:
    async with egress_fleet(tmp_path, WorkerEgressPolicy()) as made:
        yield made


def follow(fleet: EgressFleet, device: Any, claimed: str = "") -> Any:
    device.connect(fleet.port)
    request = egress_pb2.FollowLeasesRequest(device_id=claimed or str(device.device_id))
    return LeaseGrantServiceStub(device.channels[-1]).FollowLeases(request, timeout=60)


def grant(number: int) -> LeaseGrant:
    return LeaseGrant(
        worker_id="w", lease_id=f"{number:026d}", fence=number, hosts=("a.example",), max_bytes=7, timeout_ms=1_000
    )


async def test_the_whole_list_comes_first_and_then_what_changes(fleet: EgressFleet) -> None:
    device, other = await fleet.pair(), await fleet.pair()
    fleet.grants.grant(str(device.device_id), grant(1))
    fleet.grants.grant(str(other.device_id), grant(2))
    call = follow(fleet, device)
    whole = await call.read()
    assert whole.whole and b"BEGIN CERTIFICATE" in whole.ca_bundle_pem
    assert [each.fence for each in whole.still_open] == [1]
    (granted,) = whole.granted
    assert (granted.lease_id, list(granted.hosts), granted.max_bytes) == (f"{1:026d}", ["a.example"], 7)
    fleet.grants.grant(str(device.device_id), grant(3))
    more = await call.read()
    assert not more.whole and [each.fence for each in more.granted] == [3] and not more.ca_bundle_pem
    fleet.grants.end(grant(1).lease_id)
    assert [each.fence for each in (await call.read()).ended] == [1]
    call.cancel()


async def test_a_newer_follower_ends_the_older_one(fleet: EgressFleet) -> None:
    device = await fleet.pair()
    first = follow(fleet, device)
    await first.read()
    second = follow(fleet, device)
    await second.read()
    assert await first.read() is grpc.aio.EOF
    fleet.grants.grant(str(device.device_id), grant(1))
    assert [each.fence for each in (await second.read()).granted] == [1]
    second.cancel()


async def test_a_revoked_proxy_is_cut_though_nothing_is_said(fleet: EgressFleet) -> None:
    device = await fleet.pair()
    call = follow(fleet, device)
    await call.read()
    await fleet.nodes.identities.revoke(device.device_id, reason="test", actor="user:operator")
    with pytest.raises(grpc.aio.AioRpcError) as cut:
        await asyncio.wait_for(call.read(), 60)
    assert cut.value.code() is grpc.StatusCode.UNAUTHENTICATED
    # The daemon's side of the stream ends a moment after its client's.
    await eventually(lambda: not fleet.grants.grant(str(device.device_id), grant(1)))


async def test_one_that_does_not_read_is_given_up(fleet: EgressFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ORDERS_WAITING", 3)
    device = await fleet.pair()
    call = follow(fleet, device)
    await call.read()
    for number in range(1, 6):
        fleet.grants.grant(str(device.device_id), grant(number))
    while (more := await call.read()) is not grpc.aio.EOF:
        assert len(more.granted) <= 3


@pytest.mark.parametrize("kind", [DeviceKind.WORKER, DeviceKind.NODE])
async def test_a_worker_does_not_hear_what_its_proxy_hears(fleet: EgressFleet, kind: DeviceKind) -> None:
    proxy, other = await fleet.pair(), await fleet.nodes.pair("not a proxy", kind)
    for claimed in (str(proxy.device_id), str(other.device_id)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await follow(fleet, other, claimed).read()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
