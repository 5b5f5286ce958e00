"""Dialler of a judged target: resolve once, judge every answer, dial a judged address, check the peer again."""

import asyncio
import errno
import ipaddress
import os
import re
import socket
from collections.abc import Coroutine
from typing import Any, Final, Literal, Self

import msgspec

from palyra.egress.domain.events import Resolver
from palyra.egress.domain.grant import EgressGrant, Meter
from palyra.egress.domain.judge import EgressProxyPolicyService, Pin
from palyra.egress.domain.refusal import NameUnresolved, Unreachable
from palyra.egress.domain.target import Target, canonical_host
from palyra.egress.limits import MAX_DIALLED_ADDRESSES, MAX_UPSTREAM_HEAD_BYTES
from palyra.egress.proxy.socket_stream import Readiness, SocketStream, readiness_of
from palyra.errors import InvalidInput

_KINDS: Final = {"http": ("connect", False), "socks5": ("socks5", False), "socks5h": ("socks5", True)}


class BadUpstream(InvalidInput):
    code = "egress.bad_upstream"
    hint = "write http://HOST:PORT, socks5://HOST:PORT, or socks5h://HOST:PORT to leave names to the proxy"


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's own proxy.

    Targets are judged before it all the same. It gets the judged address, so that it cannot be led to another one. Only
    on a network without DNS does it get names (``send_names``).
    """

    kind: Literal["connect", "socks5"]
    host: str
    port: int
    send_names: bool = False

    @classmethod
    def parse(cls, raw: str) -> Self:
        found = re.fullmatch(r"([a-z0-9]+)://([^/@]+?)/?", raw)
        if found is None or found.group(1) not in _KINDS:
            raise BadUpstream(f"{raw!r} is not an upstream proxy")
        where = Target.from_authority(found.group(2), scheme="tcp")
        kind, send_names = _KINDS[found.group(1)]
        return cls(
            kind="connect" if kind == "connect" else "socks5",
            host=canonical_host(where.host),
            port=where.port,
            send_names=send_names,
        )


_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")
_HEAD_END: Final = b"\r\n\r\n"
_SOCKS_WORDS: Final = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "address type not supported",
}


async def ask_upstream(stream: SocketStream, upstream: Upstream, host: str, target: Target) -> None:
    """Ask the upstream proxy to connect to ``host`` at the target's port. Further bytes are the server's."""
    if upstream.kind == "connect":
        await _connect(stream, host, target)
    else:
        await _socks5(stream, host, target)


async def _connect(stream: SocketStream, host: str, target: Target) -> None:
    authority = f"[{host}]:{target.port}" if ":" in host else f"{host}:{target.port}"
    await stream.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    head = b""
    while _HEAD_END not in head:
        if len(head) > MAX_UPSTREAM_HEAD_BYTES:
            raise _make_refusal(target, "its answer has no end")
        head += await _some(stream, target)
    answer, _, rest = head.partition(_HEAD_END)
    status = _STATUS.match(answer + b"\r\n")
    if status is None:
        raise _make_refusal(target, "its answer is not HTTP")
    if status.group(1) != b"200":
        raise _make_refusal(target, f"it answered {status.group(1).decode()}")
    stream.unread(rest)


async def _socks5(stream: SocketStream, host: str, target: Target) -> None:
    await stream.write(b"\x05\x01\x00")
    if await _exactly(stream, 2, target) != b"\x05\x00":
        raise _make_refusal(target, "it does not speak SOCKS5, or wants an authentication")
    await stream.write(b"\x05\x01\x00" + _socks_address(host) + target.port.to_bytes(2, "big"))
    version, reply, _, kind = await _exactly(stream, 4, target)
    if version != 5 or reply != 0:
        raise _make_refusal(target, _SOCKS_WORDS.get(reply, f"it answered {reply}"))
    length = {1: 4, 4: 16}.get(kind)
    if length is None:
        if kind != 3:
            raise _make_refusal(target, "its answer is not SOCKS5")
        length = (await _exactly(stream, 1, target))[0]
    await _exactly(stream, length + 2, target)


def _socks_address(host: str) -> bytes:
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:
        raw = host.encode()
        return bytes((3, len(raw))) + raw
    return (b"\x01" if len(packed) == 4 else b"\x04") + packed


async def _exactly(stream: SocketStream, count: int, target: Target) -> bytes:
    data = b""
    while len(data) < count:
        data += await _some(stream, target)
    stream.unread(data[count:])
    return data[:count]


async def _some(stream: SocketStream, target: Target) -> bytes:
    data = await stream.read()
    if not data:
        raise _make_refusal(target, "it closed the connection")
    return data


def _make_refusal(target: Target, why: str) -> Unreachable:
    return Unreachable(f"the upstream proxy did not connect to {target.authority}: {why}", **target.where)


_NON_BLOCKING: Final = int(socket.SOCK_STREAM) | int(socket.SOCK_NONBLOCK)


class Dialler:
    """Maker of every connection. With ``upstream`` each goes through the operator's own proxy."""

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
        """Judge the target and every address it resolves to, or raise a refusal."""
        self._service.judge_target(grant, target)
        if target.is_address:
            return self._service.judge_answers(grant, target, (target.host,))
        if self._upstream is not None and self._upstream.send_names:
            # The operator's proxy resolves and judges addresses; the name is judged here.
            return Pin(target=target, addresses=())
        return self._service.judge_answers(grant, target, await self._resolver.resolve(target.host))

    def dial(self, pin: Pin, meter: Meter) -> Coroutine[Any, Any, tuple[SocketStream, str]]:
        """Connect to the first address of the pin that answers; return the stream and the address."""
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
        """Return whether the connection stands already; False while it is under way."""
        outcome = sock.connect_ex((address, port))
        if outcome == errno.EINPROGRESS:
            # On this machine, and near it, the answer comes before a wait could begin.
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
        # Bytes that the server sent before the meter was set belong to the call too.
        early = stream.take_kept()
        meter.count_down(len(early))
        stream.unread(early)
        stream.meter = meter
        return stream, address

    async def _reach_upstream(self, upstream: Upstream, pin: Pin) -> tuple[str, SocketStream]:
        """Resolve and dial the upstream proxy without judging it: the operator named it."""
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
    return Unreachable(f"{target.authority} cannot be reached: {why}", **target.where)
