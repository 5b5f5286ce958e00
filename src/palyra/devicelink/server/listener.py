"""The listener for paired devices, and its ports: the last used ones are tried first, because devices know them."""

import json
import logging
import resource
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from palyra.config.state_dir import StateDir
from palyra.devicelink import limits
from palyra.errors import Unavailable

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager

PORTS_FILE: Final = "nodes.ports.json"
BACKLOG: Final = 128


class ListenerPortTaken(Unavailable):
    code = "nodes.listener_port_taken"
    hint = "stop what listens there, or choose another nodes.pairing_port (0 takes any free one)"


class PortMemory:
    def __init__(self, state: StateDir) -> None:
        self._state = state

    def candidates(self, name: str, configured: int) -> tuple[int, ...]:
        """List the ports to try: a configured one only, otherwise the last used one, then any."""
        if configured:
            return (configured,)
        kept = self._read().get(name)
        return (kept, 0) if kept else (0,)

    def keep(self, name: str, port: int) -> None:
        known = self._read()
        if known.get(name) != port:
            self._state.write_atomic(PORTS_FILE, json.dumps({**known, name: port}).encode())

    def _read(self) -> dict[str, int]:
        """Read the file. A damaged one counts as empty, because ports are a convenience."""
        try:
            kept = json.loads(self._state.path(PORTS_FILE).read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(kept, dict):
            return {}
        return {name: port for name, port in kept.items() if type(port) is int and 0 < port < 65_536}


def bind_first(host: str, ports: Sequence[int]) -> socket.socket:
    """Listen on the first free port."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ListenerPortTaken(f"nodes.host {host!r} is no address of this machine: {error.strerror}") from error
    trouble = "no port was given"
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address[0], port))
            listener.listen(BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            trouble = error.strerror or str(error)
    raise ListenerPortTaken(f"cannot listen on {host} port {', '.join(map(str, ports))}: {trouble}")


# The listener for paired devices has mutual TLS, with certificates that change while it runs.
#
# A client without a certificate of one of our authorities fails the handshake. The gate checks for each call whose
# certificate it is, and whether it is still good.

log = logging.getLogger("palyra.nodes")
# Calls at once on the whole listener; each device has one stream and a few calls besides.
MAX_CONCURRENT_CALLS: Final = 16_384
_OPTIONS: Final = (
    # Two daemons must not share a port by accident.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", limits.MAX_STREAMS_PER_CONNECTION),
    ("grpc.max_metadata_size", limits.MAX_METADATA_BYTES),
    ("grpc.max_connection_idle_ms", limits.IDLE_CONNECTION_MS),
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", limits.SHORTEST_PING_MS),
    ("grpc.server_handshake_timeout_ms", limits.HANDSHAKE_TIMEOUT_MS),
    # The memory of an idle connection: the buffer for an outgoing TLS record, and the trace that gRPC keeps of every
    # connection for channelz, which nobody uses here.
    ("grpc.tsi.max_frame_size", limits.TLS_RECORD_BYTES),
    ("grpc.enable_channelz", 0),
    ("grpc.max_channel_trace_event_memory_per_node", 0),
)


class DevicePortTaken(Unavailable):
    code = "nodes.port_taken"
    hint = "stop what listens there, or choose another nodes.port (0 takes any free one)"


AddService = Callable[[Any], None]


def connections_within(descriptors: int | None) -> int:
    """Compute how many connections to accept, of a process with this many descriptors (None: unlimited)."""
    if descriptors is None:
        return limits.MAX_CONNECTIONS
    return max(1, min(limits.MAX_CONNECTIONS, descriptors // limits.DESCRIPTOR_SHARE))


def _descriptors() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


class DeviceListener:
    def __init__(self, identities: "IdentityManager", host: str) -> None:
        self._identities = identities
        self._host = host
        self._server: Any = None
        # The certificate shown last: a handshake with the same one needs no new configuration.
        self._shown: tuple[str, bytes] | None = None
        self.port = 0

    async def start(self, services: Sequence[AddService], ports: Sequence[int]) -> int:
        """Listen on the first free port, and return it. A service is ``add_..._to_server`` bound to a servicer."""
        import grpc

        # gRPC closes further connections without a handshake, so they hold no descriptor.
        options = (*_OPTIONS, ("grpc.max_allowed_incoming_connections", connections_within(_descriptors())))
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS)
        for add in services:
            add(server)
        host = f"[{self._host}]" if ":" in self._host else self._host
        for port in ports:
            # New credentials for each try: gRPC takes the first configuration out of them once.
            credentials = grpc.dynamic_ssl_server_credentials(
                self._configuration(), self._fetch, require_client_authentication=True
            )
            try:
                self.port = server.add_secure_port(f"{host}:{port}", credentials)
            except RuntimeError:
                continue
            if self.port:
                break
        else:
            await server.stop(None)
            raise DevicePortTaken(f"cannot listen on {self._host} port {', '.join(map(str, ports))}")
        await server.start()
        self._server = server
        return self.port

    async def stop(self, grace: float) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace)

    def _fetch(self) -> Any:
        """Return a new configuration, or None to keep the present one. A gRPC thread calls this at each handshake."""
        try:
            certificate = self._identities.server_certificate()
            bundle = self._identities.ca_bundle_pem()
        except Exception:
            # A handshake must not fail because a renewal did: the certificate in use may still be good.
            log.exception("the server's certificate could not be renewed")
            return None
        if self._shown == (certificate.fingerprint, bundle):
            return None
        return self._configuration()

    def _configuration(self) -> Any:
        import grpc

        certificate = self._identities.server_certificate()
        bundle = self._identities.ca_bundle_pem()
        self._shown = (certificate.fingerprint, bundle)
        return grpc.ssl_server_certificate_configuration(
            [(certificate.key_pem.reveal().encode(), certificate.chain_pem)], root_certificates=bundle
        )
