"""Devices as the settings want them: their state, the desks, and the listeners, which open when a device is wanted.

Nothing of gRPC is imported and no port is opened before a pairing code is made, or a device is paired already.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from palyra.clock import Clock
from palyra.config.settings import NodeSettings
from palyra.config.state_dir import StateDir
from palyra.daemons.node_tool import DeviceCalls, DevicesNeedDaemon, DevicesOff
from palyra.daemons.pairing_parts import PairingParts
from palyra.daemons.port_memory import PortMemory, bind_first
from palyra.errors import PalyraError
from palyra.identity.device import DeviceId, DeviceKind
from palyra.identity.revocation import DeviceState
from palyra.journal.event import NewEvent
from palyra.journal.sqlite import SqliteStore
from palyra.nodes.dispatcher import Ask, Dispatcher
from palyra.nodes.node_desk import NodeDesk
from palyra.nodes.node_registry import NodeRegistry
from palyra.nodes.pairing_desk import PairingDesk
from palyra.nodes.records import NodeRecord
from palyra.nodes.refusals import RefusalKind
from palyra.nodes.rpc_limits import GOODBYE_SECONDS
from palyra.nodes.sqlite_state import SqlNodeState
from palyra.nodes.state_file import NodeRuntimeState
from palyra.nodes.state_port import NodeState, NodeUnit
from palyra.secret import Secret

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager
    from palyra.nodes.grpc_gate import PeerGate

log = logging.getLogger("palyra.nodes")

# A listener that could not be opened, or broke, is tried again after this long.
RETRY_SECONDS: Final = 30.0
# How often the authorities are compared with what devices were told.
NEWS_SECONDS: Final = 1.0
_ANY_ADDRESS: Final = frozenset(("0.0.0.0", "::"))  # noqa: S104

AddService = Callable[["PeerGate"], Callable[[Any], None]]


class NodeMetrics(Protocol):
    def node_refused(self, code: str) -> None: ...

    def node_request_ended(self, state: str) -> None: ...


class NodeParts:
    """``further`` services share the listener and the gate: each is given the gate and adds itself to the server."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        store: SqliteStore,
        state: StateDir,
        clock: Clock,
        identity: "Callable[[], IdentityManager]",
        calls: DeviceCalls,
        learn: Callable[[Secret], None],
        instance: str,
        metrics: NodeMetrics,
        actor: str,
    ) -> None:
        self._settings = settings
        self._store = store
        self._state_dir = state
        self._clock = clock
        self._identity = identity
        self._calls = calls
        self._learn = learn
        self._instance = instance
        self._metrics = metrics
        self._actor = actor
        self.registry = NodeRegistry()
        self.further: list[AddService] = []
        # Told which device is no longer let in, and why, besides the nodes' own dispatcher.
        self.on_ended: list[Callable[[DeviceId, str], None]] = []
        self._opening = asyncio.Lock()
        self._opened: OpenedNodes | None = None
        self._runs = False
        self._wanted = asyncio.Event()
        self._ports = PortMemory(state)
        self._port = 0

    async def opened(self) -> "OpenedNodes":
        """The state and the desks over it; made when first asked for."""
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open()
            return self._opened

    async def _open(self) -> "OpenedNodes":
        settings = self._settings
        state: NodeState
        if settings.store == "file":
            state = await NodeRuntimeState.open(self._state_dir.root, self._store, self._clock)
        else:
            state = SqlNodeState(self._store, self._clock)
        dispatcher = Dispatcher(
            state=state,
            registry=self.registry,
            clock=self._clock,
            instance=self._instance,
            max_result_bytes=settings.max_result_bytes,
            heartbeat_timeout=settings.heartbeat_timeout_seconds,
            on_ended=self._metrics.node_request_ended,
        )
        desk = NodeDesk(
            state=state, registry=self.registry, dispatcher=dispatcher, identities=self._identity, clock=self._clock
        )
        parts = PairingParts(
            settings,
            state=state,
            identity=self._identity,
            clock=self._clock,
            learn=self._learn,
            bind=self._bind_pairing,
            node_port=lambda: self._port,
            refused=lambda code, _address: self._metrics.node_refused(code),
        )
        return OpenedNodes(state, dispatcher, desk, parts)

    def devices(self) -> "OpenedNodes":
        """What `node.invoke` works with: there only while a daemon runs."""
        if not self._settings.enabled:
            raise DevicesOff("devices are switched off")
        if not self._runs or self._opened is None:
            raise DevicesNeedDaemon("no daemon runs that devices could be connected to")
        return self._opened

    def status(self) -> dict[str, Any]:
        return {"enabled": self._settings.enabled, "online": len(self.registry), "port": self._port or None}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Beside the calls of a daemon. Trouble with devices stops nothing else."""
        if not self._settings.enabled:
            yield
            return
        opened = await self.opened()
        # What an earlier daemon left past its deadline has timed out, and is never sent.
        await opened.dispatcher.tend_once()
        if opened.state.read(_somebody_is_paired):
            self._wanted.set()
        async with asyncio.TaskGroup() as beside:
            tasks = [
                beside.create_task(opened.parts.run(), name="pairing"),
                beside.create_task(self._listen_when_wanted(opened), name="devices"),
            ]
            # Both have begun when this comes back: a code can be asked for at once.
            await asyncio.sleep(0)
            self._runs = True
            try:
                yield
            finally:
                self._runs = False
                for task in tasks:
                    task.cancel()

    def _bind_pairing(self) -> socket.socket:
        """Who pairs will want to connect: both listeners open together."""
        self._wanted.set()
        settings = self._settings
        listener = bind_first(settings.host, self._ports.candidates("pairing_port", settings.pairing_port))
        self._ports.keep("pairing_port", listener.getsockname()[1])
        return listener

    async def _listen_when_wanted(self, opened: "OpenedNodes") -> None:
        while True:
            await self._wanted.wait()
            try:
                await self._listen(opened)
            except* (PalyraError, OSError) as trouble:
                log.error("devices cannot connect: %s", trouble.exceptions[0])
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self, opened: "OpenedNodes") -> None:
        from palyra.egress.descriptor_limit import raise_descriptor_limit
        from palyra.identity.fingerprint import fingerprint_of
        from palyra.nodes.grpc_gate import PeerGate
        from palyra.nodes.grpc_server import DeviceListener
        from palyra.nodes.grpc_service import NodeService
        from palyra.wire.node.v1.node_pb2_grpc import add_NodeServiceServicer_to_server

        settings, identity = self._settings, self._identity()
        await identity.open()
        gate = PeerGate(
            identity,
            fingerprint_of=fingerprint_of,
            is_paired=opened.desk.is_paired,
            record=self._record_refusal,
            clock=self._clock,
            on_refused=self._metrics.node_refused,
        )
        service = NodeService(
            gate=gate,
            desk=opened.desk,
            dispatcher=opened.dispatcher,
            registry=self.registry,
            execute=self._calls,
            clock=self._clock,
            heartbeat_seconds=settings.heartbeat_seconds,
        )
        services: list[Callable[[Any], None]] = [partial(add_NodeServiceServicer_to_server, service)]
        services += [add(gate) for add in self.further]
        ended: asyncio.Queue[tuple[DeviceId, str]] = asyncio.Queue()
        told = _telling(opened.dispatcher, ended)
        listening = (told, service.ended, *self.on_ended)
        identity.on_ended += listening
        # A process starts with a thousand descriptors, and a fleet may have more workers than that.
        raise_descriptor_limit()
        listener = DeviceListener(identity, settings.host)
        try:
            self._port = await listener.start(services, self._ports.candidates("port", settings.port))
            self._ports.keep("port", self._port)
            async with asyncio.TaskGroup() as beside:
                beside.create_task(identity.keep(actor=self._actor), name="identity")
                beside.create_task(opened.dispatcher.tend(), name="devices tended")
                beside.create_task(self._tell_news(identity, opened.dispatcher), name="certificate news")
                beside.create_task(self._reconcile(identity, opened.desk, ended), name="ended devices")
        finally:
            for each in listening:
                identity.on_ended.remove(each)
            self._port = 0
            opened.dispatcher.end_all()
            await asyncio.shield(listener.stop(GOODBYE_SECONDS))

    async def _tell_news(self, identity: "IdentityManager", dispatcher: Dispatcher) -> None:
        """Devices that are connected hear of new authorities; those that are not, when they register."""
        told, signed = identity.ca_bundle_pem(), identity.ca_hash()
        while True:
            await asyncio.sleep(NEWS_SECONDS)
            bundle, signs = identity.ca_bundle_pem(), identity.ca_hash()
            if bundle != told:
                # One that only retired asks for no new certificates: those by the one that signs are in use already.
                dispatcher.announce(bundle, renew_now=signs != signed)
                told, signed = bundle, signs

    async def _reconcile(
        self, identity: "IdentityManager", desk: NodeDesk, ended: "asyncio.Queue[tuple[DeviceId, str]]"
    ) -> None:
        """A device that identity revoked is revoked in the record too, also after a crash between the two."""
        revoked = {one.device_id for one in identity.devices() if one.state is DeviceState.REVOKED}
        for node in desk.nodes():
            if node.revoked_ms is None and node.id in revoked:
                await desk.note_revoked(node.id, reason="revoked before", actor=self._actor)
        while True:
            device_id, code = await ended.get()
            try:
                if code == "identity.revoked":
                    await desk.note_revoked(device_id, reason=identity.device(device_id).reason, actor=self._actor)
            except PalyraError as error:
                # Workers have identities too, and no record among the nodes.
                log.debug("nothing to note of %s: %s", device_id, error)

    async def _record_refusal(self, kind: RefusalKind, count: int) -> None:
        payload = {**kind._asdict(), "count": count}
        event = NewEvent(kind="node.peer_refused", actor=self._actor, payload=payload)
        await self._store.transact(lambda tx: tx.append(event))


class OpenedNodes:
    """The state of devices and the desks over it; also what `node.invoke` sees of them."""

    def __init__(self, state: NodeState, dispatcher: Dispatcher, desk: NodeDesk, parts: PairingParts) -> None:
        self.state = state
        self.dispatcher = dispatcher
        self.desk = desk
        self.parts = parts

    @property
    def pairing(self) -> PairingDesk:
        return self.parts.desk

    def nodes(self) -> list[NodeRecord]:
        return [node for node in self.desk.nodes() if node.kind is DeviceKind.NODE]

    def online(self) -> list[str]:
        return self.desk.online()

    async def invoke(self, ask: Ask) -> bytes:
        return await self.dispatcher.invoke(ask)


def _telling(dispatcher: Dispatcher, ended: "asyncio.Queue[tuple[DeviceId, str]]") -> Callable[[DeviceId, str], None]:
    def tell(device_id: DeviceId, code: str) -> None:
        dispatcher.end_device(device_id, code)
        ended.put_nowait((device_id, code))

    return tell


def advertised_names(settings: NodeSettings) -> tuple[str, ...]:
    """What the certificate of the listeners vouches for besides its fixed name."""
    bound = () if settings.host in _ANY_ADDRESS else (settings.host,)
    return tuple(dict.fromkeys((*settings.advertise, *bound)))


def _somebody_is_paired(unit: NodeUnit) -> bool:
    return any(node.revoked_ms is None for node in unit.nodes.list())
