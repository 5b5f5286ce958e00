"""Reaching a judged target: resolve once, judge every answer, dial exactly a judged address, look at the peer again."""

import asyncio
import errno
import os
import socket
from collections.abc import Coroutine
from typing import Any, Final

from palyra.egress.grant import EgressGrant
from palyra.egress.judge import EgressProxyPolicyService, Pin
from palyra.egress.meter import Meter
from palyra.egress.ports import Resolver
from palyra.egress.proxy_limits import MAX_DIALLED_ADDRESSES
from palyra.egress.readiness import Readiness, readiness_of
from palyra.egress.refusal import NameUnresolved, Unreachable
from palyra.egress.socket_stream import SocketStream
from palyra.egress.target import Target
from palyra.egress.upstream import Upstream
from palyra.egress.upstream_handshake import ask_upstream

_NON_BLOCKING: Final = int(socket.SOCK_STREAM) | int(socket.SOCK_NONBLOCK)


class Dialler:
    """The one way out of this process. With ``upstream`` every connection goes through the operator's own proxy."""

    def __init__(
        self,
        service: EgressProxyPolicyService,
        resolver: Resolver,
        *,
        connect_seconds: float,
        upstream: Upstream | None = None,
    ) -> None:
        self._service = service
        self._resolver = resolver
        self._connect_seconds = connect_seconds
        self._upstream = upstream
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readiness: Readiness | None = None

    async def pin(self, grant: EgressGrant, target: Target) -> Pin:
        """Judges the target and everything it resolves to. Raises what refuses it."""
        self._service.judge_target(grant, target)
        if target.is_address:
            return self._service.judge_answers(grant, target, (target.host,))
        if self._upstream is not None and self._upstream.send_names:
            # The operator's proxy resolves and judges addresses; the name was ours to judge.
            return Pin(target=target, addresses=())
        return self._service.judge_answers(grant, target, await self._resolver.resolve(target.host))

    def dial(self, pin: Pin, meter: Meter) -> Coroutine[Any, Any, tuple[SocketStream, str]]:
        """A connection to the first address of the pin that answers, and that address."""
        if self._upstream is not None:
            return self._dial_upstream(self._upstream, pin, meter)
        return self._dial_first(pin, pin.addresses, pin.target.port, meter)

    async def _dial_first(
        self, pin: Pin, addresses: tuple[str, ...], port: int, meter: Meter | None
    ) -> tuple[SocketStream, str]:
        failure = "it has no address"
        for address in addresses[:MAX_DIALLED_ADDRESSES]:
            stream = self._stream_for(address, pin.target, meter)
            try:
                if not self._begin(stream.sock, address, port):
                    await self._finish(stream)
                self._check_peer(stream.sock, pin)
            except TimeoutError:
                stream.close()
                failure = f"no answer within {self._connect_seconds:g} s"
            except OSError as error:
                stream.close()
                failure = os.strerror(error.errno) if error.errno else str(error)
            except BaseException:
                stream.close()
                raise
            else:
                return stream, address
        raise _unreachable(pin.target, failure)

    @staticmethod
    def _begin(sock: socket.socket, address: str, port: int) -> bool:
        """Whether the connection stands already; False while it is under way."""
        outcome = sock.connect_ex((address, port))
        if outcome == errno.EINPROGRESS:
            # On this machine, and near it, the answer is there before we could wait for it.
            outcome = sock.connect_ex((address, port))
        if outcome in (errno.EALREADY, errno.EINPROGRESS):
            return False
        if outcome not in (0, errno.EISCONN):
            raise OSError(outcome, os.strerror(outcome))
        return True

    async def _finish(self, stream: SocketStream) -> None:
        async with asyncio.timeout(self._connect_seconds):
            await stream.writable()
        outcome = stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if outcome:
            raise OSError(outcome, os.strerror(outcome))

    def _check_peer(self, sock: socket.socket, pin: Pin) -> None:
        peer = sock.getpeername()
        self._service.confirm_peer(pin, peer[0])
        if sock.getsockname() == peer:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the connection met itself")

    def _stream_for(self, address: str, target: Target, meter: Meter | None) -> SocketStream:
        try:
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, _NON_BLOCKING)
        except OSError as error:
            raise _unreachable(target, os.strerror(error.errno or 0)) from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._readiness = loop, readiness_of(loop)
        return SocketStream(sock, loop, meter, self._readiness)

    async def _dial_upstream(self, upstream: Upstream, pin: Pin, meter: Meter) -> tuple[SocketStream, str]:
        address, stream = await self._reach_upstream(upstream, pin)
        try:
            async with asyncio.timeout(self._connect_seconds):
                await ask_upstream(stream, upstream, pin.addresses[0] if pin.addresses else pin.target.host, pin.target)
        except TimeoutError:
            stream.close()
            raise _unreachable(pin.target, "the upstream proxy did not answer in time") from None
        except OSError as error:
            stream.close()
            raise _unreachable(pin.target, f"the upstream proxy broke off: {error}") from None
        except BaseException:
            stream.close()
            raise
        # What the server said before we began to count belongs to the call too.
        early = stream.take_kept()
        meter.count_down(len(early))
        stream.unread(early)
        stream.meter = meter
        return stream, address

    async def _reach_upstream(self, upstream: Upstream, pin: Pin) -> tuple[str, SocketStream]:
        """The operator named this host: it is resolved and dialled, not judged."""
        try:
            addresses = await self._resolver.resolve(upstream.host)
        except NameUnresolved as error:
            raise _unreachable(pin.target, f"the upstream proxy: {error.message}") from None
        at_upstream = Pin(target=Target.of(upstream.host, upstream.port, scheme="tcp"), addresses=addresses)
        try:
            stream, _ = await self._dial_first(at_upstream, addresses, upstream.port, None)
        except Unreachable as error:
            raise _unreachable(pin.target, f"through the upstream proxy: {error.message}") from None
        return (pin.addresses[0] if pin.addresses else ""), stream


def _unreachable(target: Target, why: str) -> Unreachable:
    return Unreachable(f"{target.authority} cannot be reached: {why}", host=target.host, port=target.port)
