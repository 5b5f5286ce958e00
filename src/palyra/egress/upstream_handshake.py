"""Asking an operator's proxy for a connection: CONNECT or SOCKS5, from the client's side."""

import base64
import ipaddress
import re
from typing import Final

from palyra.egress.proxy_limits import MAX_UPSTREAM_HEAD_BYTES
from palyra.egress.refusal import Unreachable
from palyra.egress.socket_stream import SocketStream
from palyra.egress.target import Target
from palyra.egress.upstream import Upstream

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
    """Makes the upstream proxy connect to ``host`` at the target's port; what follows on the stream is the server's."""
    if upstream.kind == "connect":
        await _connect(stream, upstream, host, target)
    else:
        await _socks5(stream, upstream, host, target)


async def _connect(stream: SocketStream, upstream: Upstream, host: str, target: Target) -> None:
    authority = f"[{host}]:{target.port}" if ":" in host else f"{host}:{target.port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if upstream.credentials is not None:
        pair = base64.b64encode(upstream.credentials.reveal().encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {pair}")
    await stream.write("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while _HEAD_END not in head:
        if len(head) > MAX_UPSTREAM_HEAD_BYTES:
            raise _refused(target, "its answer has no end")
        head += await _some(stream, target)
    answer, _, rest = head.partition(_HEAD_END)
    status = _STATUS.match(answer + b"\r\n")
    if status is None:
        raise _refused(target, "its answer is not HTTP")
    if status.group(1) != b"200":
        raise _refused(target, f"it answered {status.group(1).decode()}")
    stream.unread(rest)


async def _socks5(stream: SocketStream, upstream: Upstream, host: str, target: Target) -> None:
    method = 0 if upstream.credentials is None else 2
    await stream.write(bytes((5, 1, method)))
    if await _exactly(stream, 2, target) != bytes((5, method)):
        raise _refused(target, "it speaks no SOCKS5, or wants another authentication")
    if upstream.credentials is not None:
        user, _, password = upstream.credentials.reveal().partition(":")
        await stream.write(b"\x01" + _counted(user) + _counted(password))
        if (await _exactly(stream, 2, target))[1] != 0:
            raise _refused(target, "it does not accept the credentials")
    await stream.write(b"\x05\x01\x00" + _socks_address(host) + target.port.to_bytes(2, "big"))
    version, reply, _, kind = await _exactly(stream, 4, target)
    if version != 5 or reply != 0:
        raise _refused(target, _SOCKS_WORDS.get(reply, f"it answered {reply}"))
    length = {1: 4, 4: 16}.get(kind)
    if length is None:
        if kind != 3:
            raise _refused(target, "its answer is not SOCKS5")
        length = (await _exactly(stream, 1, target))[0]
    await _exactly(stream, length + 2, target)


def _socks_address(host: str) -> bytes:
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:
        return b"\x03" + _counted(host)
    return (b"\x01" if len(packed) == 4 else b"\x04") + packed


def _counted(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw


async def _exactly(stream: SocketStream, count: int, target: Target) -> bytes:
    data = b""
    while len(data) < count:
        data += await _some(stream, target)
    stream.unread(data[count:])
    return data[:count]


async def _some(stream: SocketStream, target: Target) -> bytes:
    data = await stream.read()
    if not data:
        raise _refused(target, "it closed the connection")
    return data


def _refused(target: Target, why: str) -> Unreachable:
    return Unreachable(
        f"the upstream proxy did not connect to {target.authority}: {why}", host=target.host, port=target.port
    )
