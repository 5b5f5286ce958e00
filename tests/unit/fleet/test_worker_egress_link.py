"""The proxy's link to its daemon: leases heard, lost and found again, and a certificate renewed under way."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from fakes.egress_fleet import EgressFleet, egress_fleet
from fakes.eventually import eventually
from fakes.node_server_harness import ByHand
from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import NotPaired, PairingFolder
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.proxy.resolver import SystemResolver
from palyra.fleet.egress.connection import EgressLink
from palyra.fleet.egress.leases import LeaseGrant, LeaseRef
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.egress.process import open_folder
from palyra.fleet.egress.proxy import WorkerEgress, WorkerPin
from palyra.fleet.egress.violations import ViolationReports, ViolationSpool
from palyra.signing.p256 import P256Signer

PATIENCE = 60


def grant(number: int) -> LeaseGrant:
    return LeaseGrant(worker_id="w", lease_id=f"{number:026d}", fence=number, timeout_ms=600_000)


class Linked:
    def __init__(self, fleet: EgressFleet, device: ByHand) -> None:
        self.fleet = fleet
        self.device = device
        self.folder: PairingFolder = open_folder(StateDir.open(fleet.install(device)))
        record = self.folder.load()
        assert record is not None
        self.record = record
        self.spool = ViolationSpool(self.folder.folder.root, SystemClock().now_ms)
        self.resolver = SystemResolver({})
        self.egress = WorkerEgress(
            WorkerEgressPolicy(),
            egress_id=str(device.device_id),
            signer=P256Signer.generate(),
            pin=WorkerPin(self.folder, "w"),
            reports=ViolationReports(self.spool, SystemClock()),
            service=EgressProxyPolicyService(frozenset),
            resolver=self.resolver,
            clock=SystemClock(),
        )
        self.link = EgressLink(self.folder, record, self.egress, clock=SystemClock(), draw=random.random)

    async def knows(self, number: int, *, over: bool = False) -> None:
        def is_known() -> bool:
            found = self.egress.registry.find(f"{number:026d}")
            return found is not None and found.is_over is over

        await eventually(is_known)


@asynccontextmanager
async def linked(folder: Path) -> AsyncIterator[Linked]:
    async with egress_fleet(folder, WorkerEgressPolicy()) as fleet:
        made = Linked(fleet, await fleet.pair())
        running = asyncio.create_task(made.link.run())
        try:
            await asyncio.wait_for(made.link.online.wait(), PATIENCE)
            yield made
        finally:
            running.cancel()
            await asyncio.wait([running])
            made.egress.proxy.close()
            made.resolver.close()
            made.spool.close()


async def test_a_daemon_that_comes_back_says_which_leases_are_left(tmp_path: Path) -> None:
    async with linked(tmp_path) as harness:
        egress_id = str(harness.device.device_id)
        for number in (1, 2, 3):
            harness.fleet.grants.grant(egress_id, grant(number))
            await harness.knows(number)
        await harness.fleet.stop_listening()
        # While it is away nothing changes here.
        harness.fleet.grants.end(grant(1).lease_id)
        harness.fleet.grants.grant(egress_id, grant(4))
        assert not harness.egress.registry.find(grant(1).lease_id).is_over  # type: ignore[union-attr]
        await harness.fleet.listen()
        await harness.knows(4)
        await harness.knows(1, over=True)
        await harness.knows(2)


async def test_a_daemon_that_lost_its_memory_goes_by_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with linked(tmp_path) as harness:
        for number in (1, 2):
            harness.fleet.grants.grant(str(harness.device.device_id), grant(number))
            await harness.knows(number)
        await harness.fleet.stop_listening()
        harness.fleet.grants = type(harness.fleet.grants)()
        monkeypatch.setattr(harness.fleet, "_open_leases", lambda _: [LeaseRef(grant(2).lease_id, 2)])
        await harness.fleet.listen()
        await harness.knows(1, over=True)
        # Its grant is known here, and the ledger has it open.
        await harness.knows(2)


async def test_the_certificate_is_renewed_for_the_same_key_and_the_streams_go_on(tmp_path: Path) -> None:
    async with linked(tmp_path) as harness:
        before = harness.folder.load()
        harness.link._renew_now.set()
        await eventually(lambda: (now := harness.folder.load()) and now.generation != harness.record.generation)
        after = harness.folder.load()
        assert before is not None and after is not None and after.key_pem is not None and before.key_pem is not None
        assert after.key_pem.reveal() == before.key_pem.reveal()
        assert after.certificate_pem != before.certificate_pem
        harness.fleet.grants.grant(str(harness.device.device_id), grant(5))
        await harness.knows(5)
        # The daemon has seen the new one in use: the old one is no longer good.
        held = harness.fleet.nodes.identities.device(harness.device.device_id)
        assert held.generation == after.generation


async def test_a_proxy_that_was_revoked_keeps_trying_and_opens_nothing_new(tmp_path: Path) -> None:
    async with linked(tmp_path) as harness:
        await harness.fleet.nodes.identities.revoke(harness.device.device_id, reason="test", actor="user:operator")
        await eventually(lambda: not harness.link.online.is_set())
        assert not harness.fleet.grants.grant(str(harness.device.device_id), grant(6))
        assert harness.egress.registry.find(grant(6).lease_id) is None


async def test_without_a_pairing_there_is_no_link(tmp_path: Path) -> None:
    async with linked(tmp_path) as harness:
        for changes in ({"certificate_pem": ""}, {"servers": ()}):
            record = msgspec.structs.replace(harness.record, **changes)
            with pytest.raises(NotPaired):
                EgressLink(harness.folder, record, harness.egress, clock=SystemClock(), draw=random.random)
