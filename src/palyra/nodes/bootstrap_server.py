"""The bootstrap listener: HTTPS with the server's certificate, for devices that have none yet.

It accepts connections itself: a place is taken before the TLS handshake, so that silent clients cannot take them all.
The certificate may change while it listens; each handshake uses the newest. What it served lately is remembered,
because a device's proof names the certificate it saw.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from typing import Final, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from palyra.nodes.bootstrap_protocol import BootstrapHttpProtocol, Place, Places
from palyra.nodes.limits import PAIRING_HANDSHAKE_SECONDS
from palyra.nodes.pairing_door import Served
from palyra.nodes.presented_certificate import certificate_hash, certificates_in
from palyra.secret import Secret

_LOG = logging.getLogger("palyra.nodes")
# Certificates served lately: a device may have shaken hands a moment before the newest came.
_REMEMBERED: Final = 4
# After a failure of accept itself, such as too many open files.
_ACCEPT_PAUSE_SECONDS: Final = 0.1


class ServerCertificate(Protocol):
    @property
    def key_pem(self) -> Secret: ...

    @property
    def chain_pem(self) -> bytes: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def authority_id(self) -> str:
        """SHA-256 of the authority that issued it, in hex."""


class ServerIdentity(Protocol):
    def server_certificate(self) -> ServerCertificate: ...

    def ca_bundle_pem(self) -> bytes: ...


class ServedIdentity:
    """The TLS context of the newest certificate, and what pairing says about it."""

    def __init__(self, identity: ServerIdentity) -> None:
        self._identity = identity
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self) -> ssl.SSLContext:
        certificate = self._identity.server_certificate()
        known = self._contexts.get(certificate.fingerprint)
        if known is None:
            known = _context_of(certificate)
            self._contexts[certificate.fingerprint] = known
            for old in list(self._contexts)[:-_REMEMBERED]:
                del self._contexts[old]
        return known

    def served(self) -> Served:
        self.context()
        certificate = self._identity.server_certificate()
        for ca_der in certificates_in(self._identity.ca_bundle_pem()):
            if certificate_hash(ca_der) == certificate.authority_id:
                return Served(ca_der, certificate.authority_id, tuple(self._contexts))
        raise RuntimeError("the authority of the server's certificate is not in its bundle")


class BootstrapListener:
    """Serves an application on a listening socket until cancelled; then every connection is cut."""

    def __init__(self, listener: socket.socket, app: ASGIApp, identity: ServedIdentity) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._identity = identity
        self._places = Places()
        self._state = ServerState()
        self._config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            ws="none",
            proxy_headers=False,
        )
        self._config.load()

    @property
    def connections(self) -> int:
        return self._places.taken()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    try:
                        accepted, peer = await loop.sock_accept(self._listener)
                    except OSError as error:
                        _LOG.warning("the pairing listener cannot accept: %s", error.strerror)
                        await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                        continue
                    place = self._places.take(peer[0])
                    if place is None:
                        accepted.close()
                        continue
                    group.create_task(self._greet(accepted, place))
        finally:
            for task in tuple(self._state.tasks):
                task.cancel()
            for connection in tuple(self._state.connections):
                # Every protocol here is one of ours.
                connection.transport.abort()

    async def _greet(self, accepted: socket.socket, place: Place) -> None:
        """Only the handshake: from there on the connection lives by its protocol."""
        try:
            # Asyncio does this only for sockets that name their protocol, and the listener need not.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = self._identity.context()
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: BootstrapHttpProtocol(
                    place, config=self._config, server_state=self._state, app_state={}, _loop=None
                ),
                accepted,
                ssl=context,
                ssl_handshake_timeout=PAIRING_HANDSHAKE_SECONDS,
            )
        except (OSError, TimeoutError):
            place.leave()
            accepted.close()
        except asyncio.CancelledError:
            place.leave()
            accepted.close()
            raise
        except Exception:
            # The vault's key may be locked: then there is no certificate to show.
            _LOG.exception("a pairing connection could not be greeted")
            place.leave()
            accepted.close()


def _context_of(certificate: ServerCertificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    content = certificate.key_pem.reveal().encode() + b"\n" + certificate.chain_pem
    with _nameless_file(content) as path:
        context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _nameless_file(content: bytes) -> Iterator[str]:
    """``ssl`` reads keys from files only: one in memory, without a name, where the system has such."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("palyra-key", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name
