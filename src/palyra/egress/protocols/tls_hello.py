"""Parser of a TLS ClientHello for its server name and protocols, without taking part in the handshake.

A hello may come in many TCP segments and in several records. A hello that two programs could read differently (two
names, a repeated extension, bytes left over) is refused.
"""

import re
from struct import Struct
from typing import Final

import msgspec

from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.limits import MAX_CLIENT_HELLO_BYTES, MAX_HELLO_RECORDS, MAX_HOST_CHARS, MAX_RECORD_BYTES
from palyra.egress.protocols.state_machine import MachineEvent, MachineMisused, MachineState, step


class HelloState(MachineState):
    READING = "reading"
    KNOWN = "known"
    REFUSED = "refused"


class HelloEvent(MachineEvent):
    RECORD = "record"
    WHOLE = "whole"
    MALFORMED = "malformed"


TRANSITIONS: Final[dict[tuple[HelloState, HelloEvent], HelloState]] = {
    (HelloState.READING, HelloEvent.RECORD): HelloState.READING,
    (HelloState.READING, HelloEvent.WHOLE): HelloState.KNOWN,
    (HelloState.READING, HelloEvent.MALFORMED): HelloState.REFUSED,
}

_RECORD_HEADER: Final = 5
_MESSAGE_HEADER: Final = 4
_EXTENSION_HEADER: Final = Struct(">HH")
_TOO_SHORT: Final = "a ClientHello that is shorter than it says"
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_HOST_NAME: Final = 0
_SERVER_NAME: Final = 0
_ALPN: Final = 16
# The encrypted hello, and the draft before it that encrypted only the name.
_ENCRYPTED: Final = frozenset({0xFE0D, 0xFFCE})
_name: Final = re.compile(rb"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*").fullmatch


class ClientHello(msgspec.Struct, frozen=True, kw_only=True):
    """``server_name`` is in lower case. ``encrypted``: there is an inner hello, whose name is unreadable.

    The outer name counts, because most browsers send an inner hello that means nothing.
    """

    server_name: str | None = None
    alpn: tuple[str, ...] = ()
    encrypted: bool = False


class ClientHelloPeek:
    """Buffer of one hello. ``seen`` are all bytes so far, to be passed on unchanged."""

    def __init__(self) -> None:
        self.state = HelloState.READING
        self._seen = bytearray()
        self._at = 0
        self._records = 0
        self._message = bytearray()

    @property
    def seen(self) -> bytes:
        return bytes(self._seen)

    def receive(self, data: bytes) -> ClientHello | None:
        """Return the hello once it is whole. Raise ``MalformedTraffic`` as soon as it cannot become one."""
        if self.state is not HelloState.READING:
            raise MachineMisused("a hello that was read or refused is not read again")
        self._seen += data
        try:
            while self._take_record():
                self._step(HelloEvent.RECORD)
            if not self._whole():
                return None
            hello = parse_client_hello(bytes(self._message[_MESSAGE_HEADER:]))
        except MalformedTraffic:
            self._step(HelloEvent.MALFORMED)
            raise
        self._step(HelloEvent.WHOLE)
        return hello

    def _take_record(self) -> bool:
        """Move the next whole record's content into the message."""
        if self._whole():
            return False
        header = bytes(self._seen[self._at : self._at + _RECORD_HEADER])
        if header[:1] not in (b"", b"\x16"):
            raise MalformedTraffic("an SSLv2 hello" if header[0] & 0x80 else "a TLS record that is not a handshake")
        if header[1:2] not in (b"", b"\x03"):
            raise MalformedTraffic("a TLS record of an unknown version")
        if len(header) < _RECORD_HEADER:
            return False
        length = int.from_bytes(header[3:], "big")
        if not 0 < length <= MAX_RECORD_BYTES:
            raise MalformedTraffic("a TLS record that is empty or too long")
        start = self._at + _RECORD_HEADER
        if self._records == MAX_HELLO_RECORDS:
            raise MalformedTraffic("a ClientHello in too many records")
        if len(self._seen) < start + length:
            return False
        self._message += self._seen[start : start + length]
        self._at = start + length
        self._records += 1
        return True

    def _whole(self) -> bool:
        message = self._message
        if message and message[0] != _CLIENT_HELLO:
            raise MalformedTraffic("a TLS handshake that does not begin with a ClientHello")
        if len(message) < _MESSAGE_HEADER:
            return False
        size = _MESSAGE_HEADER + int.from_bytes(message[1:_MESSAGE_HEADER], "big")
        if size > MAX_CLIENT_HELLO_BYTES:
            raise MalformedTraffic(f"a ClientHello longer than {MAX_CLIENT_HELLO_BYTES} bytes")
        if len(message) > size:
            raise MalformedTraffic("more than a ClientHello in its record")
        return len(message) == size

    def _step(self, event: HelloEvent) -> None:
        self.state = step(TRANSITIONS, self.state, event)


class _Fields:
    """Reader of length-prefixed fields, in order and never past their end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        start, end = self._at, self._at + count
        if end > len(self._data):
            raise MalformedTraffic(_TOO_SHORT)
        self._at = end
        return self._data[start:end]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def counted(self, width: int) -> bytes:
        return self.take(self.number(width))

    def end(self) -> None:
        if self.left:
            raise MalformedTraffic("a ClientHello with bytes left over")


def parse_client_hello(body: bytes) -> ClientHello:
    """Parse the handshake message without its header. Raise ``MalformedTraffic``."""
    fields = _Fields(body)
    if fields.number(2) >> 8 != 3:
        raise MalformedTraffic("a ClientHello of an unknown version")
    fields.take(32)
    if len(fields.counted(1)) > 32:
        raise MalformedTraffic("a ClientHello with a session id that is too long")
    ciphers = fields.counted(2)
    if not ciphers or len(ciphers) % 2:
        raise MalformedTraffic("a ClientHello with a broken list of ciphers")
    if not fields.counted(1):
        raise MalformedTraffic("a ClientHello without a compression method")
    if not fields.left:
        return ClientHello()
    extensions = _extensions(fields.counted(2))
    fields.end()
    name, protocols = extensions.get(_SERVER_NAME), extensions.get(_ALPN)
    return ClientHello(
        server_name=None if name is None else _server_name(name),
        alpn=() if protocols is None else _protocols(protocols),
        encrypted=not _ENCRYPTED.isdisjoint(extensions),
    )


def _extensions(raw: bytes) -> dict[int, bytes]:
    """Read extensions as ``_Fields`` would, without a call for each number: a hello has twenty of them."""
    found: dict[int, bytes] = {}
    at, size = 0, len(raw)
    while at < size:
        start = at + _EXTENSION_HEADER.size
        if start > size:
            raise MalformedTraffic(_TOO_SHORT)
        kind, length = _EXTENSION_HEADER.unpack_from(raw, at)
        at = start + length
        if at > size:
            raise MalformedTraffic(_TOO_SHORT)
        if kind in found:
            raise MalformedTraffic("a ClientHello with an extension twice")
        found[kind] = raw[start:at]
    return found


def _server_name(raw: bytes) -> str:
    outer = _Fields(raw)
    names = _Fields(outer.counted(2))
    outer.end()
    if names.number(1) != _HOST_NAME:
        raise MalformedTraffic("a server name that is not a host name")
    name = names.counted(2)
    if names.left:
        raise MalformedTraffic("a ClientHello with more than one server name")
    if len(name) > MAX_HOST_CHARS or _name(name) is None:
        raise MalformedTraffic("a server name that is not a plain host name without a final dot")
    return name.decode("ascii").lower()


def _protocols(raw: bytes) -> tuple[str, ...]:
    outer = _Fields(raw)
    names = _Fields(outer.counted(2))
    outer.end()
    found = []
    while names.left:
        name = names.counted(1)
        if not name:
            raise MalformedTraffic("an empty protocol name in a ClientHello")
        found.append(name.decode("latin-1"))
    if not found:
        raise MalformedTraffic("an empty list of protocols in a ClientHello")
    return tuple(found)
