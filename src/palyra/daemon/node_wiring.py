"""The wiring of devices: pairing, the state of devices, and the listeners, which open when a device is expected."""

import asyncio
import hashlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from palyra.clock import Clock
from palyra.config.state_dir import StateDir
from palyra.devicelink.limits import GOODBYE_SECONDS
from palyra.devicelink.pairing.code import ServerAddress
from palyra.devicelink.server.connections import NodeRegistry
from palyra.devicelink.server.listener import PortMemory, bind_first
from palyra.devicelink.server.peer_checks import RefusalKind
from palyra.errors import PalyraError
from palyra.executors.node.executor import DeviceCalls, DevicesNeedDaemon, DevicesOff
from palyra.identity.device import DeviceId, DeviceKind, DeviceState
from palyra.nodes.domain.records import NodeRecord
from palyra.nodes.pairing.rules import NotListening
from palyra.nodes.pairing.service import DecisionSignal, PairingEndpoint, PairingService
from palyra.nodes.server.dispatcher import CapabilityCall, Dispatcher
from palyra.nodes.server.paired_devices import PairedDevices
from palyra.nodes.settings import NodeSettings
from palyra.nodes.store.file import NodeRuntimeState
from palyra.nodes.store.node_tables import SqlNodeState
from palyra.nodes.store.port import NodeState, NodeUnit
from palyra.secret import Secret
from palyra.store.event import NewEvent
from palyra.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager
    from palyra.nodes.pairing.listener import ServedIdentity

log = logging.getLogger("palyra.nodes")

# Addresses to listen on that nobody can go to.
_EVERYWHERE = frozenset(("0.0.0.0", "::"))  # noqa: S104


class PairingServices:
    """``bind`` gives a listening socket; it is called once, when the listener opens."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        state: NodeState,
        identity: "Callable[[], IdentityManager]",
        clock: Clock,
        learn: Callable[[Secret], None],
        bind: Callable[[], socket.socket],
        node_port: Callable[[], int],
        refused: Callable[[str, str], None] = lambda code, address: None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._identity = identity
        self._clock = clock
        self._bind = bind
        self._node_port = node_port
        self._refused = refused
        self._decided = DecisionSignal()
        self._wanted = asyncio.Event()
        self._endpoint: asyncio.Future[Callable[[], PairingEndpoint]] | None = None
        self.pairing = PairingService(
            state=state,
            open_endpoint=self.open,
            random=os.urandom,
            decided=self._decided,
            learn=learn,
            ttl_seconds=settings.code_seconds,
        )

    async def open(self) -> PairingEndpoint:
        if self._endpoint is None or self._endpoint.cancelled():
            raise NotListening("no daemon listens for devices here")
        self._wanted.set()
        describe = await asyncio.shield(self._endpoint)
        return describe()

    def is_needed(self) -> bool:
        """Whether a device may come with a code, or for an answer, that was made in an earlier life."""
        return self._state.read(
            lambda unit: (
                any(code.in_force(unit.now_ms) for code in unit.codes.list())
                or any(pairing.open() and unit.now_ms < pairing.expires_ms for pairing in unit.pairings.list())
            )
        )

    async def run(self) -> None:
        """Listen once a pairing is expected. Ends only by being cancelled.

        If listening fails, the waiting requests get the error.
        """
        if not self._settings.enabled:
            return
        if self.is_needed():
            self._wanted.set()
        while True:
            self._endpoint = endpoint = asyncio.get_running_loop().create_future()
            try:
                await self._wanted.wait()
                await self._serve(endpoint)
            except (PalyraError, OSError) as error:
                self._wanted.clear()
                self._endpoint = None
                log.warning("devices cannot be paired: %s", error)
                if not endpoint.done():
                    endpoint.set_exception(_as_refusal(error))
                    # Known as seen: at a start nobody waits for it.
                    endpoint.exception()
            finally:
                endpoint.cancel()

    async def _serve(self, endpoint: "asyncio.Future[Callable[[], PairingEndpoint]]") -> None:
        from palyra.nodes.pairing.listener import BootstrapListener, ServedIdentity, create_bootstrap_app
        from palyra.nodes.pairing.service import BootstrapService

        await self._identity().open()
        served = ServedIdentity(self._identity())
        service = BootstrapService(
            state=self._state,
            issuer=self._identity(),
            read_key=key_fingerprint,
            served=served.served,
            node_port=self._node_port,
            clock=self._clock,
            decided=self._decided,
            refused=self._refused,
        )
        with self._bind() as listener:
            bound = listener.getsockname()
            # Asked for every code: the authority may have been replaced since.
            endpoint.set_result(lambda: self._describe(served, bound))
            await BootstrapListener(listener, create_bootstrap_app(service), served).serve()

    def _describe(self, served: "ServedIdentity", bound: tuple[str, int]) -> PairingEndpoint:
        names = self._settings.advertise or (socket.gethostname() if bound[0] in _EVERYWHERE else bound[0],)
        addresses = (f"[{name}]:{bound[1]}" if ":" in name else f"{name}:{bound[1]}" for name in names)
        return PairingEndpoint(tuple(ServerAddress.parse(address) for address in addresses), served.served().ca_hash)


def _as_refusal(error: PalyraError | OSError) -> PalyraError:
    if isinstance(error, PalyraError):
        return error
    return NotListening(f"the daemon cannot listen for devices: {error.strerror}")


def key_fingerprint(csr_der: bytes) -> str:
    """SHA-256 of the public key that a CSR is for; refuses one that asks for more than a certificate."""
    from palyra.identity.x509 import read_requested_key

    return hashlib.sha256(read_requested_key(csr_der)).hexdigest()


#
# Nothing of gRPC is imported and no port is opened before a pairing code is made, or a device is paired already.

# A listener that could not be opened, or broke, is tried again after this long.
RETRY_SECONDS: Final = 30.0
# How often the authorities are compared with those that devices know.
NEWS_SECONDS: Final = 1.0
_ANY_ADDRESS: Final = frozenset(("0.0.0.0", "::"))  # noqa: S104

AddService = Callable[[Any], Callable[[Any], None]]


class NodeMetrics(Protocol):
    def node_refused(self, code: str) -> None: ...

    def node_request_ended(self, state: str) -> None: ...


class NodeServices:
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
        # Notified of a device that may no longer connect, and why, after the dispatcher of nodes.
        self.on_ended: list[Callable[[DeviceId, str], None]] = []
        self._opening = asyncio.Lock()
        self._opened: OpenedNodes | None = None
        self._runs = False
        self._wanted = asyncio.Event()
        self._ports = PortMemory(state)
        self._port = 0

    async def opened(self) -> "OpenedNodes":
        """Return the state and the services over it, built at the first use."""
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
        paired = PairedDevices(
            state=state, registry=self.registry, dispatcher=dispatcher, identities=self._identity, clock=self._clock
        )
        parts = PairingServices(
            settings,
            state=state,
            identity=self._identity,
            clock=self._clock,
            learn=self._learn,
            bind=self._bind_pairing,
            node_port=lambda: self._port,
            refused=lambda code, _address: self._metrics.node_refused(code),
        )
        return OpenedNodes(state, dispatcher, paired, parts)

    def devices(self) -> "OpenedNodes":
        """Return what ``node.invoke`` works with. It exists only while a daemon runs."""
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
        """Open both listeners: a device that pairs connects afterwards."""
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
        from palyra.devicelink.server.gate import PeerGate
        from palyra.devicelink.server.listener import DeviceListener
        from palyra.egress.proxy.server import raise_descriptor_limit
        from palyra.identity.certificate import fingerprint_of
        from palyra.nodes.server.rpc import NodeService
        from palyra.wire.node.v1.node_pb2_grpc import add_NodeServiceServicer_to_server

        settings, identity = self._settings, self._identity()
        await identity.open()
        gate = PeerGate(
            identity,
            fingerprint_of=fingerprint_of,
            is_paired=opened.node_service.is_paired,
            record=self._record_refusal,
            clock=self._clock,
            on_refused=self._metrics.node_refused,
        )
        service = NodeService(
            gate=gate,
            paired=opened.node_service,
            dispatcher=opened.dispatcher,
            registry=self.registry,
            execute=self._calls,
            clock=self._clock,
            heartbeat_seconds=settings.heartbeat_seconds,
        )
        services: list[Callable[[Any], None]] = [partial(add_NodeServiceServicer_to_server, service)]
        services += [add(gate) for add in self.further]
        ended: asyncio.Queue[tuple[DeviceId, str]] = asyncio.Queue()
        notify = _build_notifier(opened.dispatcher, ended)
        listening = (notify, service.cancel_calls, *self.on_ended)
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
                beside.create_task(self._reconcile(identity, opened.node_service, ended), name="ended devices")
        finally:
            for each in listening:
                identity.on_ended.remove(each)
            self._port = 0
            opened.dispatcher.end_all()
            await asyncio.shield(listener.stop(GOODBYE_SECONDS))

    async def _tell_news(self, identity: "IdentityManager", dispatcher: Dispatcher) -> None:
        """Send new authorities to connected devices. The others get them when they register."""
        sent, signed = identity.ca_bundle_pem(), identity.ca_hash()
        while True:
            await asyncio.sleep(NEWS_SECONDS)
            bundle, signs = identity.ca_bundle_pem(), identity.ca_hash()
            if bundle != sent:
                # One that only retired asks for no new certificates: those by the one that signs are in use already.
                dispatcher.announce(bundle, renew_now=signs != signed)
                sent, signed = bundle, signs

    async def _reconcile(
        self, identity: "IdentityManager", paired: PairedDevices, ended: "asyncio.Queue[tuple[DeviceId, str]]"
    ) -> None:
        """Revoke a device that identity revoked in the record too, even after a crash between the two."""
        revoked = {one.device_id for one in identity.devices() if one.state is DeviceState.REVOKED}
        for node in paired.nodes():
            if node.revoked_ms is None and node.id in revoked:
                await paired.note_revoked(node.id, reason="revoked before", actor=self._actor)
        while True:
            device_id, code = await ended.get()
            try:
                if code == "identity.revoked":
                    await paired.note_revoked(device_id, reason=identity.device(device_id).reason, actor=self._actor)
            except PalyraError as error:
                # Workers have identities too, and no record among the nodes.
                log.debug("nothing to note of %s: %s", device_id, error)

    async def _record_refusal(self, kind: RefusalKind, count: int) -> None:
        payload = {**kind._asdict(), "count": count}
        event = NewEvent(kind="node.peer_refused", actor=self._actor, payload=payload)
        await self._store.transact(lambda tx: tx.append(event))


class OpenedNodes:
    """The state of devices and the services over it, as ``node.invoke`` sees them."""

    def __init__(self, state: NodeState, dispatcher: Dispatcher, paired: PairedDevices, parts: PairingServices) -> None:
        self.state = state
        self.dispatcher = dispatcher
        self.node_service = paired
        self.parts = parts

    @property
    def pairing(self) -> PairingService:
        return self.parts.pairing

    def nodes(self) -> list[NodeRecord]:
        return [node for node in self.node_service.nodes() if node.kind is DeviceKind.NODE]

    def online(self) -> list[str]:
        return self.node_service.online()

    async def invoke(self, call: CapabilityCall) -> bytes:
        return await self.dispatcher.invoke(call)


def _build_notifier(
    dispatcher: Dispatcher, ended: "asyncio.Queue[tuple[DeviceId, str]]"
) -> Callable[[DeviceId, str], None]:
    def notify(device_id: DeviceId, code: str) -> None:
        dispatcher.end_device(device_id, code)
        ended.put_nowait((device_id, code))

    return notify


def advertised_names(settings: NodeSettings) -> tuple[str, ...]:
    """Return the names that the certificate of the listeners contains besides its fixed one."""
    bound = () if settings.host in _ANY_ADDRESS else (settings.host,)
    return tuple(dict.fromkeys((*settings.advertise, *bound)))


def _somebody_is_paired(unit: NodeUnit) -> bool:
    return any(node.revoked_ms is None for node in unit.nodes.list())
