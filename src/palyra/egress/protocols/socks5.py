"""The server's side of SOCKS5 (RFC 1928): CONNECT only, without authentication.

Bytes in, commands out. The destination is reported exactly as it was sent, and judged elsewhere.
"""

import ipaddress
from enum import IntEnum
from typing import Final

import msgspec

from palyra.egress.domain.address import address_text
from palyra.egress.limits import MAX_EARLY_BYTES
from palyra.egress.protocols.state_machine import MachineEvent, MachineState, step


class Socks5State(MachineState):
    GREETING = "greeting"
    REQUEST = "request"
    WAITING = "waiting"
    OPEN = "open"
    REFUSED = "refused"


class Socks5Event(MachineEvent):
    GREETED = "greeted"
    REQUESTED = "requested"
    REJECTED = "rejected"
    EARLY_BYTES = "early_bytes"
    ACCEPTED = "accepted"
    REFUSED = "refused"


_S = Socks5State
_E = Socks5Event
TRANSITIONS: Final[dict[tuple[Socks5State, Socks5Event], Socks5State]] = {
    (_S.GREETING, _E.GREETED): _S.REQUEST,
    (_S.GREETING, _E.REJECTED): _S.REFUSED,
    (_S.REQUEST, _E.REQUESTED): _S.WAITING,
    (_S.REQUEST, _E.REJECTED): _S.REFUSED,
    (_S.WAITING, _E.EARLY_BYTES): _S.WAITING,
    (_S.WAITING, _E.ACCEPTED): _S.OPEN,
    (_S.WAITING, _E.REFUSED): _S.REFUSED,
    (_S.WAITING, _E.REJECTED): _S.REFUSED,
    (_S.OPEN, _E.EARLY_BYTES): _S.OPEN,
    (_S.OPEN, _E.REJECTED): _S.REFUSED,
    (_S.REFUSED, _E.EARLY_BYTES): _S.REFUSED,
}


class ReplyCode(IntEnum):
    SUCCEEDED = 0
    FAILURE = 1
    NOT_ALLOWED = 2
    NETWORK_UNREACHABLE = 3
    HOST_UNREACHABLE = 4
    CONNECTION_REFUSED = 5
    EXPIRED = 6
    COMMAND_NOT_SUPPORTED = 7
    ADDRESS_NOT_SUPPORTED = 8


class Reply(msgspec.Struct, frozen=True):
    data: bytes


class Connect(msgspec.Struct, frozen=True):
    """``host`` is the name or the address, as text; a client may send an address as a name."""

    host: str
    port: int


class Reject(msgspec.Struct, frozen=True):
    """Order to send ``data``, if any, and close."""

    code: int
    data: bytes
    why: str


Socks5Command = Reply | Connect | Reject


_VERSION: Final = 5
_NO_AUTHENTICATION: Final = 0
_CONNECT: Final = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_NO_METHOD: Final = b"\x05\xff"
_LENGTHS: Final = {_IPV4: 4, _IPV6: 16}


class _Rejected(Exception):
    def __init__(self, code: int, data: bytes, why: str) -> None:
        self.command = Reject(code, data, why)


class Socks5Server:
    """Machine of one client connection. ``rest`` holds the bytes after the request: the first of the tunnel."""

    def __init__(self) -> None:
        self.state = Socks5State.GREETING
        self._held = b""

    @property
    def rest(self) -> bytes:
        return self._held if self.state in (Socks5State.WAITING, Socks5State.OPEN) else b""

    def receive(self, data: bytes) -> list[Socks5Command]:
        said: list[Socks5Command] = []
        self._held = held = self._held + data if self._held else data
        try:
            while True:
                if self.state is Socks5State.GREETING:
                    used = self._greet(held, said)
                elif self.state is Socks5State.REQUEST:
                    used = self._request(held, said)
                else:
                    self._keep(data)
                    break
                if not used:
                    break
                self._held = held = data = held[used:]
        except _Rejected as rejected:
            self._held = b""
            self._step(Socks5Event.REJECTED)
            said.append(rejected.command)
        return said

    def accepted(self) -> bytes:
        """Return the answer to send once the connection stands. It names no address of ours."""
        self._step(Socks5Event.ACCEPTED)
        return _reply(ReplyCode.SUCCEEDED)

    def refused(self, reply_code: int) -> bytes:
        """Return the answer to send if no connection is made."""
        self._step(Socks5Event.REFUSED)
        return _reply(reply_code)

    def _greet(self, held: bytes, said: list[Socks5Command]) -> int:
        if held[:1] not in (b"", b"\x05"):
            raise _Rejected(ReplyCode.FAILURE, b"", "this is not SOCKS5")
        if len(held) < 2:
            return 0
        end = 2 + held[1]
        if end == 2:
            raise _Rejected(ReplyCode.FAILURE, _NO_METHOD, "no way to authenticate is offered")
        if len(held) < end:
            return 0
        if _NO_AUTHENTICATION not in held[2:end]:
            raise _Rejected(ReplyCode.FAILURE, _NO_METHOD, "the way to authenticate is not offered")
        self._step(Socks5Event.GREETED)
        said.append(Reply(bytes((_VERSION, _NO_AUTHENTICATION))))
        return end

    def _request(self, held: bytes, said: list[Socks5Command]) -> int:
        if held[:1] not in (b"", b"\x05"):
            raise _Rejected(ReplyCode.FAILURE, _reply(ReplyCode.FAILURE), "this is not a SOCKS5 request")
        if len(held) < 5:
            return 0
        _, command, reserved, kind, first = held[:5]
        if command != _CONNECT:
            code = ReplyCode.COMMAND_NOT_SUPPORTED
            raise _Rejected(code, _reply(code), "only CONNECT is supported")
        if reserved:
            raise _Rejected(ReplyCode.FAILURE, _reply(ReplyCode.FAILURE), "a reserved byte is not zero")
        start, length = (5, first) if kind == _NAME else (4, _LENGTHS.get(kind, 0))
        if not length:
            code = ReplyCode.ADDRESS_NOT_SUPPORTED
            raise _Rejected(code, _reply(code), "an empty name or an unknown kind of address")
        end = start + length + 2
        if len(held) < end:
            return 0
        port = int.from_bytes(held[end - 2 : end], "big")
        host = _host(kind, held[start : end - 2])
        if not port:
            raise _Rejected(ReplyCode.FAILURE, _reply(ReplyCode.FAILURE), "port 0 does not exist")
        self._step(Socks5Event.REQUESTED)
        said.append(Connect(host, port))
        return end

    def _keep(self, data: bytes) -> None:
        """Keep, drop or refuse bytes beyond the request. ``_held`` has ``data`` already."""
        if not data:
            return
        if self.state is Socks5State.REFUSED:
            self._held = b""
        elif len(self._held) > MAX_EARLY_BYTES:
            raise _Rejected(ReplyCode.FAILURE, b"", "too much sent before an answer")
        self._step(Socks5Event.EARLY_BYTES)

    def _step(self, event: Socks5Event) -> None:
        self.state = step(TRANSITIONS, self.state, event)


def _host(kind: int, raw: bytes) -> str:
    if kind == _IPV4:
        return "{}.{}.{}.{}".format(*raw)
    if kind == _IPV6:
        return address_text(ipaddress.IPv6Address(raw))
    if not raw.isascii():
        code = ReplyCode.ADDRESS_NOT_SUPPORTED
        raise _Rejected(code, _reply(code), "a name that is not ASCII: encode it with IDNA")
    return raw.decode("ascii")


def _reply(code: int) -> bytes:
    return bytes((_VERSION, code, 0, _IPV4, 0, 0, 0, 0, 0, 0))
