"""A fleet's ledger, a listener with the services for egress proxies, one worker, and its proxy: all real parts."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fakes.eventually import eventually
from fakes.fleet_peers import POLICY, WORKER, FleetPeers
from fakes.journal_harness import JournalHarness
from fakes.node_server_harness import ByHand, MovedClock, NodeServerHarness
from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import DeviceRecord
from palyra.devicelink.server.listener import DeviceListener
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import WorkerLease
from palyra.fleet.domain.manager import WorkerFleetManager
from palyra.fleet.domain.signed_statement import SignedStatement, sign_statement
from palyra.fleet.domain.worker import WorkerRecord
from palyra.fleet.egress.leases import LeaseGrant, LeaseRef
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.egress.process import open_folder
from palyra.fleet.server.egress_rpc import EgressService, LeaseGrantService
from palyra.fleet.server.lease_grants import LeaseGrants
from palyra.fleet.store.fleet_tables import SqliteFleet
from palyra.fleet.store.schema import SCHEMA
from palyra.identity.device import DeviceKind
from palyra.secret import Secret
from palyra.signing.p256 import P256Verifier
from palyra.wire.egress.v1.egress_pb2_grpc import add_LeaseGrantServiceServicer_to_server
from palyra.wire.worker.v1.worker_pb2_grpc import add_EgressServiceServicer_to_server

PATIENCE = 60.0


class EgressFleet:
    """The daemon's side. ``stop_listening`` and ``listen`` are a daemon that goes away and comes back."""

    def __init__(self, folder: Path, policy: WorkerEgressPolicy) -> None:
        self.folder = folder
        self.policy = policy
        self.nodes = NodeServerHarness(folder, MovedClock())
        (folder / "fleet").mkdir(mode=0o700, exist_ok=True)
        self.store = JournalHarness(folder / "fleet").open(schema=SCHEMA, clock=SystemClock())
        fleet_policy = msgspec.structs.replace(POLICY, egress_policy_digests=frozenset((policy.digest(),)))
        self.ledger = SqliteFleet(self.store, WorkerFleetManager(fleet_policy))
        self.harness = FleetPeers(fleet_policy)
        self.grants = LeaseGrants()
        self.port = 0
        self._listener: DeviceListener | None = None

    async def start(self) -> None:
        await self.nodes.start()
        await self.listen()

    async def listen(self) -> None:
        leases = LeaseGrantService(self.nodes.gate, self.grants, self._open_leases)
        reports = EgressService(self.nodes.gate, self.ledger.decide)
        self._listener = DeviceListener(self.nodes.identities, "127.0.0.1")
        services: list[Any] = [
            partial(add_LeaseGrantServiceServicer_to_server, leases),
            partial(add_EgressServiceServicer_to_server, reports),
        ]
        self.port = await self._listener.start(services, [self.port])

    async def stop_listening(self) -> None:
        if self._listener is not None:
            await self._listener.stop(0)
            self._listener = None

    async def stop(self) -> None:
        await self.stop_listening()
        await self.nodes.stop()
        self.store.close()

    def _open_leases(self, egress_id: str) -> list[LeaseRef]:
        bound = [each for each in self.ledger.workers() if each.egress_id == egress_id]
        return [
            LeaseRef(lease_id, self.ledger.lease(lease_id).fence) for each in bound for lease_id in each.open_leases
        ]

    async def pair(self) -> ByHand:
        return await self.nodes.pair("a proxy", DeviceKind.EGRESS)

    def install(self, proxy: ByHand, name: str = "proxy") -> Path:
        """A state directory in which the proxy is paired."""
        home = self.folder / name
        folder = open_folder(StateDir.open(home))
        folder.save(
            DeviceRecord(
                device_name="a proxy",
                servers=(f"127.0.0.1:{self.port}",),
                device_id=str(proxy.device_id),
                key_pem=Secret(proxy.key.pem().decode()),
                certificate_pem=proxy.issued.certificate_pem.decode(),
                ca_bundle_pem=self.nodes.identities.ca_bundle_pem().decode(),
                generation=proxy.issued.generation,
            )
        )
        return home

    async def connect(self) -> WorkerRecord:
        opened = await self.ledger.decide(self.harness.open_session(WORKER))
        assert opened.worker is not None
        return opened.worker

    async def attest(self, worker: WorkerRecord, proxy: ByHand, signed: SignedStatement) -> WorkerRecord:
        """As the worker would, with the binding that its proxy signed; raises what the ledger refuses."""
        said = self.harness.attestation(worker, SystemClock().now_ms())
        said = said.with_binding(str(proxy.device_id), signed)
        command = msgspec.structs.replace(
            self.harness.presenting(worker, sign_statement(said, self.harness.key(WORKER))),
            egress_keys={str(proxy.device_id): P256Verifier.from_certificate(proxy.issued.certificate_pem)},
        )
        decided = await self.ledger.decide(command)
        assert decided.worker is not None
        return decided.worker

    async def lease(self, proxy: ByHand, hosts: tuple[str, ...], **changes: Any) -> WorkerLease:
        """A lease of the worker, its grant told to the proxy."""
        lease = await self.harness.leased(self.ledger, WORKER, now_ms=SystemClock().now_ms())
        self.grant(proxy, lease, hosts, **changes)
        return lease

    def grant(self, proxy: ByHand, lease: WorkerLease, hosts: tuple[str, ...], **changes: Any) -> None:
        fields: dict[str, Any] = {"max_bytes": 1 << 30, "timeout_ms": 600_000, **changes}
        grant = LeaseGrant(
            worker_id=lease.worker_id,
            lease_id=lease.lease_id,
            fence=lease.fence,
            run_id=lease.run_id,
            call_id=lease.call_id,
            principal=lease.principal,
            tool=lease.tool,
            hosts=hosts,
            **fields,
        )
        self.grants.grant(str(proxy.device_id), grant)

    async def quarantined(self) -> WorkerRecord:
        """Wait until the worker is."""
        await eventually(lambda: self.ledger.worker(WORKER).state.value == "quarantined")
        return self.ledger.worker(WORKER)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event.payload_value() for event in self.store.events_since(0, 10_000, kind=kind)]

    async def ask_violation(self, worker_id: str, egress_id: str) -> None:
        await self.ledger.decide(
            commands.ReportViolation(actor="test", worker_id=worker_id, egress_id=egress_id, violation="test")
        )


@contextlib.asynccontextmanager
async def egress_fleet(folder: Path, policy: WorkerEgressPolicy) -> AsyncIterator[EgressFleet]:
    fleet = EgressFleet(folder, policy)
    await fleet.start()
    try:
        yield fleet
    finally:
        await fleet.stop()


class ProxyProcess:
    """``palyra-egressd run`` as a process. Its first line says that it listens."""

    def __init__(
        self, home: Path, policy: Path, where: Path, *options: str, before: Sequence[str] = (), log: str = "WARNING"
    ) -> None:
        self.socket = where
        main = ("-m", "palyra.daemon.egressd", "--state-dir", str(home))
        words = [*before, sys.executable, *main, "run", "--policy", str(policy), "--socket", str(where), *options]
        source = str(Path(__file__).resolve().parents[2] / "src")
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source, "PALYRA_LOG__LEVEL": log}
        )
        assert self.process.stdout is not None
        self.said: dict[str, Any] = json.loads(self.process.stdout.readline() or b"{}")

    def kill(self) -> None:
        self.process.kill()
        self.stop()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def listening() -> Any:
    """A socket that listens on this machine's own loopback."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        yield opened
