"""The bootstrap listener: HTTPS for devices without a certificate, with the three calls of pairing and nothing else.

Requests and answers are JSON, and errors have the same form as in the API. Unknown clients reach this listener, so it
bounds connections, heads, bodies and times.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import tempfile
from asyncio import TimerHandle, Transport
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from palyra.devicelink.limits import (
    MAX_PAIRING_BODY_BYTES,
    MAX_PAIRING_CONNECTIONS,
    MAX_PAIRING_CONNECTIONS_PER_ADDRESS,
    MAX_PAIRING_HEAD_BYTES,
    PAIRING_HANDSHAKE_SECONDS,
    PAIRING_REQUEST_SECONDS,
)
from palyra.devicelink.pairing import messages as wire
from palyra.devicelink.pairing.proof import hash_certificate, split_bundle
from palyra.errors import InternalError, InvalidInput, LimitExceeded, PalyraError
from palyra.identity.records import ServerCertificate
from palyra.nodes.domain.rate_limits import network_of
from palyra.nodes.pairing.service import BootstrapService, Served

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager

_LOG = logging.getLogger("palyra.nodes")
_CLIENT_CLOSED = 499


class PairingBodyTooLarge(LimitExceeded):
    code = "pairing.body_too_large"
    hint = "no message of pairing is that large"
    http_status = 413


class PairingTooSlow(LimitExceeded):
    code = "pairing.too_slow"
    hint = "a request has to arrive in time"
    http_status = 408


class NoSuchPairingCall(InvalidInput):
    code = "pairing.no_such_call"
    hint = "this listener is for pairing only"
    http_status = 404


def create_bootstrap_app(service: BootstrapService) -> ASGIApp:
    async def begin(request: Request) -> msgspec.Struct:
        return await service.begin(wire.decode(await _body(request), wire.Begin), _address(request))

    async def finish(request: Request) -> msgspec.Struct:
        return await service.finish(wire.decode(await _body(request), wire.Finish), _address(request))

    async def wait(request: Request) -> msgspec.Struct:
        return await service.wait(wire.decode(await _body(request), wire.Wait), _address(request))

    async def other(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _refusal(NoSuchPairingCall("there is nothing here"))

    calls = ((wire.BEGIN, begin), (wire.FINISH, finish), (wire.WAIT, wait))
    app = Starlette(
        routes=[Route(path, _guarded(call), methods=["POST"]) for path, call in calls],
        exception_handlers={404: other, 405: other},
    )
    app.router.redirect_slashes = False
    return app


def _guarded(call: Callable[[Request], Awaitable[msgspec.Struct]]) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            return _json(wire.encode(await call(request)), 200)
        except PalyraError as error:
            return _refusal(error)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_CLOSED)
        except Exception:
            _LOG.exception("a pairing call failed")
            return _refusal(InternalError("pairing failed inside the daemon"))

    return handle


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(PAIRING_REQUEST_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_PAIRING_BODY_BYTES:
                    raise PairingBodyTooLarge("the request is too large", limit=MAX_PAIRING_BODY_BYTES)
    except TimeoutError:
        raise PairingTooSlow("the request did not arrive in time") from None
    return bytes(body)


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _refusal(error: PalyraError) -> Response:
    shown: dict[str, Any] = {"ok": False, "error": error.as_dict()}
    # A client that was refused for size or slowness is still sending.
    headers = {"connection": "close"} if isinstance(error, PairingBodyTooLarge | PairingTooSlow) else {}
    return _json(msgspec.json.encode(shown), error.http_status, headers)


def _json(body: bytes, status: int, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    return Response(body, status, headers={"cache-control": "no-store", **headers}, media_type="application/json")


class Place:
    """One connection's place, which ``leave`` returns once."""

    def __init__(self, places: "Places", network: str) -> None:
        self._places: Places | None = places
        self.network = network

    def leave(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.give_back(self.network)


class Places:
    """The open connections of a listener, with those in their handshake, bounded in all and per network."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def take(self, address: str) -> Place | None:
        network = network_of(address)
        if self._taken.total() >= MAX_PAIRING_CONNECTIONS:
            return None
        if self._taken[network] >= MAX_PAIRING_CONNECTIONS_PER_ADDRESS:
            return None
        self._taken[network] += 1
        return Place(self, network)

    def give_back(self, network: str) -> None:
        self._taken[network] -= 1
        if not self._taken[network]:
            del self._taken[network]

    def taken(self) -> int:
        return self._taken.total()


class BootstrapHttpProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP parser. It closes a connection with too large a head, or without a whole request in time."""

    def __init__(self, place: Place, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._place = place
        self._in_head = True
        self._head_bytes = 0
        self._deadline: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        self._place.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # Bytes after the end of a head are body. The count is then reset.
        if self._in_head and self._head_bytes > MAX_PAIRING_HEAD_BYTES:
            self._close()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)
        else:
            # A trailer: the parser would collect them without end.
            self._close()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        if sum(len(name) + len(value) for name, value in self.headers) > MAX_PAIRING_HEAD_BYTES:
            self._close()
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._in_head = True
        super().on_response_complete()
        if not self.transport.is_closing():
            self._start_deadline()

    def _start_deadline(self) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(PAIRING_REQUEST_SECONDS, self._close)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


# The listener accepts connections itself: it takes a place before the TLS handshake, so that silent clients cannot take
# all. The certificate may change while it listens; each handshake uses the newest. Recent ones are kept, because a
# device's proof names the certificate it saw.

# Recent certificates: a device may have made its handshake just before the newest one came.
_REMEMBERED: Final = 4
# After a failure of accept itself, such as too many open files.
_ACCEPT_PAUSE_SECONDS: Final = 0.1


class ServedIdentity:
    """The TLS context of the newest certificate, and the hashes of recent ones for the proof."""

    def __init__(self, identity: "IdentityManager") -> None:
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
        for ca_der in split_bundle(self._identity.ca_bundle_pem()):
            if hash_certificate(ca_der) == certificate.authority_id:
                return Served(ca_der, certificate.authority_id, tuple(self._contexts))
        raise RuntimeError("the authority of the server's certificate is not in its bundle")


class BootstrapListener:
    """Serves an application on a listening socket until cancelled. Then it cuts every connection."""

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
                # Each is a BootstrapHttpProtocol, which has a transport.
                connection.transport.abort()

    async def _greet(self, accepted: socket.socket, place: Place) -> None:
        """Make the handshake. After that the protocol object handles the connection."""
        try:
            # Asyncio sets this only for sockets that were made with a protocol number.
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
            # The vault's key may be locked, so that no certificate is available.
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
    """Write the content to a nameless file in memory, if possible: ``ssl`` reads keys from files only."""
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
