"""The wiring of the fleet: its ledger, its sessions and leases, its gRPC services and its reaper.

The ledger works with or without a daemon. Workers connect, and calls run on them, only while a daemon runs.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

from palyra.clock import MS_PER_SECOND, Clock
from palyra.config.state_dir import StateDir
from palyra.daemon.node_wiring import NodeServices
from palyra.errors import PalyraError, Unavailable
from palyra.fleet.agent.facts import own_build
from palyra.fleet.domain import commands
from palyra.fleet.domain.commands import FleetDecision
from palyra.fleet.domain.lease import WorkerLease
from palyra.fleet.domain.manager import WorkerFleetManager
from palyra.fleet.domain.policy import WorkerFleetSettings
from palyra.fleet.domain.worker import WorkerLifecycleState, WorkerRecord
from palyra.fleet.egress.leases import LeaseRef
from palyra.fleet.limits import MAX_PER_ROUND, PRUNE_SECONDS, REAPER_INTERVAL_MS
from palyra.fleet.server.fleet_service import FleetSessions
from palyra.fleet.server.lease_grants import LeaseGrants
from palyra.fleet.server.lease_service import LeaseService, OutputTails
from palyra.fleet.server.messages import FleetMetrics
from palyra.fleet.store.artifacts import ArtifactStore, LeaseArtifacts
from palyra.fleet.store.fleet_tables import SqliteFleet
from palyra.identity.device import DeviceId
from palyra.store.sqlite.store import SqliteStore
from palyra.telemetry import metrics as names

if TYPE_CHECKING:
    from palyra.devicelink.server.gate import PeerGate
    from palyra.identity.identity_manager import IdentityManager

log = logging.getLogger("palyra.workers")
ARTIFACTS = "artifacts"


class WorkersNeedDaemon(Unavailable):
    code = "workers.needs_daemon"
    hint = "workers connect to the daemon: start it with `palyra up`"


class WorkersOff(Unavailable):
    code = "workers.disabled"
    hint = "the setting workers.enabled is false"


class Unpair(Protocol):
    async def __call__(self, device_id: str, *, reason: str, actor: str) -> None:
        """End the pairing of a device and revoke its certificates."""


class Watches(Protocol):
    def watch(self, name: str, help_text: str, value: Callable[[], float]) -> None: ...


class FleetServices:
    def __init__(
        self,
        settings: WorkerFleetSettings,
        *,
        store: SqliteStore,
        state: StateDir,
        clock: Clock,
        identity: "Callable[[], IdentityManager]",
        unpair: Unpair,
        instance: str,
        metrics: FleetMetrics,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._unpair = unpair
        self._clock = clock
        self._metrics = metrics
        self._runs = False
        policy = settings.policy(own_build())
        self.ledger = SqliteFleet(store, WorkerFleetManager(policy))
        self.sessions = FleetSessions(
            ledger=self.ledger,
            policy=policy,
            clock=clock,
            instance=instance,
            keys=lambda: self.keys,
            on_refused=metrics.worker_refused,
        )
        self.egress = LeaseGrants()
        self.output = OutputTails()
        self.artifacts = LeaseArtifacts(
            ArtifactStore(state.path(ARTIFACTS)), self.ledger.lease, self.sessions.confirm_lease
        )
        self._leases = LeaseService(
            self.sessions, clock=clock, egress=self.egress, metrics=metrics, forget_output=self.output.forget
        )

    @cached_property
    def keys(self) -> Any:
        from palyra.devicelink.server.gate import WorkerKeys

        return WorkerKeys(self._identity)

    @property
    def files(self) -> ArtifactStore:
        return self.artifacts.store

    def calls(self) -> LeaseService:
        """Return the service that leases calls to workers. It exists only while a daemon runs."""
        if not self._settings.enabled:
            raise WorkersOff("workers are switched off")
        if not self._runs:
            raise WorkersNeedDaemon("no daemon runs that workers could be connected to")
        return self._leases

    def join(self, nodes: NodeServices, metrics: Watches) -> None:
        """Add the fleet's services to the listener for devices, behind its gate."""
        metrics.watch(names.WORKERS, "Workers connected now.", lambda: len(self.sessions))
        metrics.watch(names.LEASES_OPEN, "Calls that workers hold now.", self.ledger.open_leases)
        metrics.watch(names.LEASES_WAITING, "Calls that wait for a worker.", lambda: self._leases.waiting)
        if self._settings.enabled:
            nodes.further += (self._build_worker_service, self._build_report_service, self._build_grant_service)
            nodes.on_ended.append(self.end_session)

    def _build_worker_service(self, gate: "PeerGate") -> Callable[[Any], None]:
        from palyra.fleet.server.worker_rpc import WorkerEvents, WorkerService
        from palyra.wire.worker.v1.worker_pb2_grpc import add_WorkerServiceServicer_to_server

        service = WorkerService(
            gate=gate,
            sessions=self.sessions,
            events=WorkerEvents(self.sessions, self._leases, self.artifacts, self.output),
            artifacts=self.artifacts,
            keys=self.keys,
            leave=self.remove,
        )
        return partial(add_WorkerServiceServicer_to_server, service)

    def _build_report_service(self, gate: "PeerGate") -> Callable[[Any], None]:
        from palyra.fleet.server.egress_rpc import EgressService
        from palyra.wire.worker.v1.worker_pb2_grpc import add_EgressServiceServicer_to_server

        return partial(add_EgressServiceServicer_to_server, EgressService(gate, self.sessions.decide))

    def _build_grant_service(self, gate: "PeerGate") -> Callable[[Any], None]:
        from palyra.fleet.server.egress_rpc import LeaseGrantService
        from palyra.wire.egress.v1.egress_pb2_grpc import add_LeaseGrantServiceServicer_to_server

        return partial(
            add_LeaseGrantServiceServicer_to_server, LeaseGrantService(gate, self.egress, self._list_open_leases)
        )

    def _list_open_leases(self, egress_id: str) -> list[LeaseRef]:
        bound = [one for one in self.ledger.holders() if one.egress_id == egress_id]
        leases = [self.ledger.lease(lease_id) for one in bound for lease_id in one.open_leases]
        return [LeaseRef(one.lease_id, one.fence) for one in leases]

    def workers(self, state: WorkerLifecycleState | None = None) -> list[WorkerRecord]:
        found: list[WorkerRecord] = []
        while page := self.ledger.workers(state, after=found[-1].worker_id if found else ""):
            found += page
        return found

    async def decide(self, command: commands.FleetCommand) -> FleetDecision:
        return await self.sessions.decide(command)

    async def remove(self, worker_id: str, *, reason: str, actor: str) -> None:
        """Remove a worker from the fleet and end its pairing."""
        await self.sessions.decide(commands.RemoveWorker(actor=actor, worker_id=worker_id, reason=reason))
        await self._unpair(worker_id, reason=reason, actor=actor)

    def end_session(self, device_id: DeviceId, code: str) -> None:
        """Cut the session of a device that is no longer admitted: the identity manager calls this."""
        self.sessions.end_session(str(device_id), code)

    def counts(self) -> dict[str, int]:
        return {state.value: count for state, count in self.ledger.counts().items()}

    def status(self) -> dict[str, Any]:
        return {"enabled": self._settings.enabled, "connected": len(self.sessions), "states": self.counts()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve workers while a daemon runs. The first round of the reaper handles what an earlier daemon left open."""
        if not self._settings.enabled:
            yield
            return
        tasks = [
            asyncio.create_task(self._reap(), name="fleet reaper"),
            asyncio.create_task(self._prune(), name="fleet pruning"),
            asyncio.create_task(self._announce(), name="fleet certificate news"),
        ]
        self._runs = True
        try:
            yield
        finally:
            self._runs = False
            self.sessions.end_all("daemon.stopping", "the daemon stops")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.sessions.batcher.settle()

    async def _reap(self) -> None:
        while True:
            try:
                await self.sessions.reap()
                self._leases.settle_moved_leases()
            except PalyraError as error:
                log.error("a round of the fleet's reaper failed: %s", error)
            except Exception:
                log.exception("a round of the fleet's reaper failed")
            await asyncio.sleep(REAPER_INTERVAL_MS / MS_PER_SECOND)

    async def prune(self) -> None:
        """Delete what ended long ago, in rounds, so that other transactions get their turn."""
        while await self.ledger.prune() >= MAX_PER_ROUND:
            pass
        still_open: list[WorkerLease] = []
        while page := self.ledger.leases(before=still_open[-1].lease_id if still_open else ""):
            still_open += page
        await self.artifacts.prune(still_open)

    async def _prune(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            try:
                await self.prune()
            except (PalyraError, OSError) as error:
                log.error("pruning the fleet failed: %s", error)

    async def _announce(self) -> None:
        """Send a new certificate bundle to the connected workers."""
        sent = b""
        while True:
            await asyncio.sleep(1.0)
            if not len(self.sessions):
                continue
            bundle = self._identity().ca_bundle_pem()
            if sent and bundle != sent:
                self.sessions.announce(bundle)
            sent = bundle
