"""The listener for paired devices: mutual TLS with certificates that change while it runs, and any number of services.

A client without a certificate of one of our authorities does not get past the handshake. Who it is, and whether that
certificate is still good, is the gate's to say, call by call.
"""

import logging
import resource
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc

from palyra.errors import Unavailable
from palyra.nodes import rpc_limits
from palyra.nodes.ports import Identities

log = logging.getLogger("palyra.nodes")
# Calls at once on the whole listener; each device has one stream and a few calls besides.
MAX_CONCURRENT_CALLS: Final = 16_384
_OPTIONS: Final = (
    # Two daemons must not share a port without knowing.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", rpc_limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", rpc_limits.MAX_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", rpc_limits.MAX_STREAMS_PER_CONNECTION),
    ("grpc.max_metadata_size", rpc_limits.MAX_METADATA_BYTES),
    ("grpc.max_connection_idle_ms", rpc_limits.IDLE_CONNECTION_MS),
    ("grpc.keepalive_time_ms", rpc_limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", rpc_limits.KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", rpc_limits.SHORTEST_PING_MS),
    ("grpc.server_handshake_timeout_ms", rpc_limits.HANDSHAKE_TIMEOUT_MS),
    # What is kept for each connection whether it is used or not: the buffer for a record of TLS on its way out, and the
    # diary that gRPC keeps of every connection for a tool which nothing here serves.
    ("grpc.tsi.max_frame_size", rpc_limits.TLS_RECORD_BYTES),
    ("grpc.enable_channelz", 0),
    ("grpc.max_channel_trace_event_memory_per_node", 0),
)


class DevicePortTaken(Unavailable):
    code = "nodes.port_taken"
    hint = "stop what listens there, or choose another nodes.port (0 takes any free one)"


AddService = Callable[[Any], None]


def connections_within(descriptors: int | None) -> int:
    """How many connections devices and strangers may hold, of a process that may have so many descriptors, or any."""
    if descriptors is None:
        return rpc_limits.MAX_CONNECTIONS
    return max(1, min(rpc_limits.MAX_CONNECTIONS, descriptors // rpc_limits.DESCRIPTOR_SHARE))


def _descriptors() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


class DeviceListener:
    def __init__(self, identities: Identities, host: str) -> None:
        self._identities = identities
        self._host = host
        self._server: Any = None
        # What was shown last: a handshake with the same certificate needs no new configuration.
        self._shown: tuple[str, bytes] | None = None
        self.port = 0

    async def start(self, services: Sequence[AddService], ports: Sequence[int]) -> int:
        """Listens on the first of the ports that is free; returns it. ``add_..._to_server`` bound to a servicer is a
        service."""
        # Beyond these gRPC closes what it accepts: without a handshake, and without a descriptor held.
        options = (*_OPTIONS, ("grpc.max_allowed_incoming_connections", connections_within(_descriptors())))
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS)
        for add in services:
            add(server)
        host = f"[{self._host}]" if ":" in self._host else self._host
        for port in ports:
            # Anew for each try: gRPC takes the first configuration out of them once.
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
        """For each handshake, in a thread of gRPC's: None goes on with what there is."""
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
        certificate = self._identities.server_certificate()
        bundle = self._identities.ca_bundle_pem()
        self._shown = (certificate.fingerprint, bundle)
        return grpc.ssl_server_certificate_configuration(
            [(certificate.key_pem.reveal().encode(), certificate.chain_pem)], root_certificates=bundle
        )
