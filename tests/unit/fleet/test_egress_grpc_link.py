"""The proxy's link over real TLS: what is received is bounded, and how it is lost is on_receipt apart."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.egress_fleet import EgressFleet, egress_fleet
from fakes.fleet_peers import WORKER
from fakes.node_server_harness import ByHand
from palyra.devicelink.agent.identity import Credentials
from palyra.fleet.egress.connection import DaemonLink, LinkRefused
from palyra.fleet.egress.leases import DaemonLinkLost, LeaseGrant, Orders
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.egress.violations import Spooled, Violation
from palyra.secret import Secret


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[EgressFleet]:
    async with egress_fleet(tmp_path, WorkerEgressPolicy()) as made:
        yield made


def link(fleet: EgressFleet, device: ByHand) -> DaemonLink:
    credentials = Credentials(
        key_pem=Secret(device.key.pem().decode()),
        certificate_pem=device.issued.certificate_pem.decode(),
        ca_bundle_pem=fleet.nodes.identities.ca_bundle_pem().decode(),
    )
    return DaemonLink(f"127.0.0.1:{fleet.port}", str(device.device_id), credentials)


async def one(*reports: Spooled) -> AsyncIterator[Spooled]:
    for each in reports:
        yield each


async def test_a_grant_that_is_not_sound_is_not_heard(fleet: EgressFleet) -> None:
    device = await fleet.pair()
    for lease_id, timeout_ms in ((f"{1:026d}", 5), ("../../x", 5), (f"{2:026d}", 0)):
        grant = LeaseGrant(worker_id="w", lease_id=lease_id, fence=1, timeout_ms=timeout_ms, hosts=("a.example",))
        fleet.grants.grant(str(device.device_id), grant)
    received: asyncio.Queue[Orders] = asyncio.Queue()
    line = link(fleet, device)
    following = asyncio.create_task(line.follow(received.put_nowait))
    whole = await asyncio.wait_for(received.get(), 60)
    assert whole.whole and [each.lease_id for each in whole.granted] == [f"{1:026d}"]
    await fleet.stop_listening()
    with pytest.raises(DaemonLinkLost) as lost:
        await asyncio.wait_for(following, 60)
    assert not isinstance(lost.value, LinkRefused)
    await line.close()


async def test_receipts_come_with_their_codes_and_a_refused_proxy_is_told_so(fleet: EgressFleet) -> None:
    device = await fleet.pair()
    line = link(fleet, device)
    answers: list[tuple[int, str]] = []
    seen = Violation(worker_id=WORKER, lease_id=f"{7:026d}", code="egress.host_not_allowed", host="x.test", seen_ms=1)
    on_receipt: Any = lambda sequence, code: answers.append((sequence, code))  # noqa: E731
    with pytest.raises(DaemonLinkLost):
        await line.report(one(Spooled(sequence=5, violation=seen)), on_receipt)
    # No worker of this name is known: the daemon says so.
    assert answers == [(5, "worker.unknown")]
    renewed = await line.renew(device.key.csr(), device.issued.generation)
    assert renewed.generation == device.issued.generation + 1
    await fleet.nodes.identities.revoke(device.device_id, reason="test", actor="user:operator")
    with pytest.raises(LinkRefused):
        await line.follow(lambda _: None)
    with pytest.raises(LinkRefused):
        await line.renew(device.key.csr(), 2)
    await line.close()


async def test_whoever_cancels_is_obeyed_and_a_closed_link_is_lost(fleet: EgressFleet) -> None:
    line = link(fleet, await fleet.pair())
    received = asyncio.Event()
    following = asyncio.create_task(line.follow(lambda _: received.set()))
    await asyncio.wait_for(received.wait(), 60)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    received.clear()
    again = asyncio.create_task(line.follow(lambda _: received.set()))
    await asyncio.wait_for(received.wait(), 60)
    await line.close()
    with pytest.raises(DaemonLinkLost):
        await asyncio.wait_for(again, 60)
