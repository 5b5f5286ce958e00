"""The server's side of SOCKS5 (RFC 1928): CONNECT only, without authentication or with a user and password (RFC 1929).

Bytes in, commands out. The destination is reported exactly as it was sent; what it means is the judge's business.
"""

import hmac
import ipaddress
from enum import IntEnum
from typing import Final

import msgspec

from palyra.egress.domain.address import address_text
from palyra.egress.limits import MAX_EARLY_BYTES
from palyra.egress.protocols.state_machine import MachineEvent, MachineState, step
from palyra.secret import Secret


class Socks5State(MachineState):
    GREETING = "greeting"
    PASSWORD = "password"  # noqa: S105
    REQUEST = "request"
    WAITING = "waiting"
    OPEN = "open"
    REFUSED = "refused"


class Socks5Event(MachineEvent):
    GREETED = "greeted"
    GREETED_FOR_PASSWORD = "greeted_for_password"  # noqa: S105
    PASSWORD_RIGHT = "password_right"  # noqa: S105
    REQUESTED = "requested"
    REJECTED = "rejected"
    EARLY_BYTES = "early_bytes"
    ACCEPTED = "accepted"
    REFUSED = "refused"


_S = Socks5State
_E = Socks5Event
TRANSITIONS: Final[dict[tuple[Socks5State, Socks5Event], Socks5State]] = {
    (_S.GREETING, _E.GREETED): _S.REQUEST,
    (_S.GREETING, _E.GREETED_FOR_PASSWORD): _S.PASSWORD,
    (_S.GREETING, _E.REJECTED): _S.REFUSED,
    (_S.PASSWORD, _E.PASSWORD_RIGHT): _S.REQUEST,
    (_S.PASSWORD, _E.REJECTED): _S.REFUSED,
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
    """``host`` is the name or the address, as text; a client may well send an address as a name."""

    host: str
    port: int


class Reject(msgspec.Struct, frozen=True):
    """Send ``data``, if any, and close."""

    code: int
    data: bytes
    why: str


Socks5Command = Reply | Connect | Reject


class Socks5Credentials(msgspec.Struct, frozen=True):
    user: str
    password: Secret

    def match(self, user: bytes, password: bytes) -> bool:
        """A wrong user takes as long as a wrong password."""
        right_user = hmac.compare_digest(user, self.user.encode())
        right_password = hmac.compare_digest(password, self.password.reveal().encode())
        return right_user and right_password


_VERSION: Final = 5
_PASSWORD_VERSION: Final = 1
_NO_AUTHENTICATION: Final = 0
_USER_AND_PASSWORD: Final = 2
_CONNECT: Final = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_NO_METHOD: Final = b"\x05\xff"
_WRONG_PASSWORD: Final = b"\x01\x01"
_LENGTHS: Final = {_IPV4: 4, _IPV6: 16}


class _Rejected(Exception):
    def __init__(self, code: int, data: bytes, why: str) -> None:
        self.command = Reject(code, data, why)


class Socks5Server:
    """One client connection. ``rest`` holds what came after the request: the first bytes of the tunnel."""

    def __init__(self, credentials: Socks5Credentials | None = None) -> None:
        self.state = Socks5State.GREETING
        self._credentials = credentials
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
                elif self.state is Socks5State.PASSWORD:
                    used = self._check_password(held, said)
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

    def accepted(self, bound: tuple[str, int] = ("0.0.0.0", 0)) -> bytes:  # noqa: S104
        """The answer to send when the connection stands."""
        self._step(Socks5Event.ACCEPTED)
        address, port = bound
        if address == "0.0.0.0" and not port:  # noqa: S104
            return _ACCEPTED
        packed = ipaddress.ip_address(address).packed
        kind = _IPV4 if len(packed) == _LENGTHS[_IPV4] else _IPV6
        return bytes((_VERSION, ReplyCode.SUCCEEDED, 0, kind)) + packed + port.to_bytes(2, "big")

    def refused(self, reply_code: int) -> bytes:
        """The answer to send when there will be no connection."""
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
        wanted = _NO_AUTHENTICATION if self._credentials is None else _USER_AND_PASSWORD
        if wanted not in held[2:end]:
            raise _Rejected(ReplyCode.FAILURE, _NO_METHOD, "the way to authenticate is not offered")
        if self._credentials is None:
            self._step(Socks5Event.GREETED)
        else:
            self._step(Socks5Event.GREETED_FOR_PASSWORD)
        said.append(_CHOICES[wanted])
        return end

    def _check_password(self, held: bytes, said: list[Socks5Command]) -> int:
        if held[:1] not in (b"", b"\x01"):
            raise _Rejected(ReplyCode.FAILURE, _WRONG_PASSWORD, "this is no user and password")
        if len(held) < 2 or len(held) < 3 + held[1]:
            return 0
        password_at = 3 + held[1]
        end = password_at + held[password_at - 1]
        if len(held) < end:
            return 0
        if not self._credentials or not self._credentials.match(held[2 : password_at - 1], held[password_at:end]):
            raise _Rejected(ReplyCode.FAILURE, _WRONG_PASSWORD, "the user or the password is wrong")
        self._step(Socks5Event.PASSWORD_RIGHT)
        said.append(_WELCOME)
        return end

    def _request(self, held: bytes, said: list[Socks5Command]) -> int:
        if held[:1] not in (b"", b"\x05"):
            raise _Rejected(ReplyCode.FAILURE, _reply(ReplyCode.FAILURE), "this is no SOCKS5 request")
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
        """``data`` is already in ``_held``; this is what the state makes of it."""
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


_ACCEPTED: Final = _reply(ReplyCode.SUCCEEDED)
_WELCOME: Final = Reply(b"\x01\x00")
_CHOICES: Final = {method: Reply(bytes((_VERSION, method))) for method in (_NO_AUTHENTICATION, _USER_AND_PASSWORD)}
