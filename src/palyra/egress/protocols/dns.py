"""DNS of a sandbox: each allowed name gets its own address in 127.0.0.0/8, every other name gets NXDOMAIN.

All of 127.0.0.0/8 is local inside a sandbox's network namespace, so a connection to such an address names its host.
No question is passed on, so nothing leaves by DNS. One fixed shape of question needs no library; any other is refused.
"""

import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.limits import DNS_TTL_SECONDS, DNS_UDP_BYTES, MAX_DNS_QUERY_BYTES, MAX_SYNTHETIC_NAMES
from palyra.errors import LimitExceeded

# Programs and resolvers listen in 127.0 (127.0.0.1, .0.53, .1.1); nobody uses the upper half of 127.
_SECOND: Final = 128
# Host parts 1 to 254: some programs take 0 and 255 for a network and its broadcast.
_PER_THIRD: Final = 254


class TooManyNames(LimitExceeded):
    code = "egress.too_many_names"
    hint = f"at most {MAX_SYNTHETIC_NAMES} names can be given to one sandbox; use a wildcard rule"


class SyntheticNames:
    """Addresses of canonical names: lower case, ASCII, without a final dot. An address keeps its name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for name in names:
            if self.assign(name) is None:
                raise TooManyNames(f"more than {MAX_SYNTHETIC_NAMES} names are allowed")

    def __len__(self) -> int:
        return len(self._names)

    def assign(self, name: str) -> str | None:
        """Return the name's address, making one at its first use; None when there are too many names."""
        known = self._addresses.get(name)
        if known is not None or len(self._names) >= MAX_SYNTHETIC_NAMES:
            return known
        third, last = divmod(len(self._names), _PER_THIRD)
        address = f"127.{_SECOND}.{third}.{last + 1}"
        self._addresses[name] = address
        self._names[address] = name
        return address

    def name_at(self, address: str) -> str | None:
        return self._names.get(address)

    def addresses(self) -> tuple[str, ...]:
        return tuple(self._names)


class DnsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``reply`` is empty if the query gets no answer. ``refused_name`` is the refused name as text.

    With ``is_full`` that name is allowed, but no address is left for it.
    """

    reply: bytes
    refused_name: str | None = None
    is_full: bool = False


class Rcode(IntEnum):
    NO_ERROR = 0
    FORMAT_ERROR = 1
    NO_SUCH_NAME = 3
    NOT_IMPLEMENTED = 4
    REFUSED = 5
    # Twelve bits with EDNS: the upper eight are in the OPT record.
    BAD_VERSION = 16


class _Question(msgspec.Struct, frozen=True):
    labels: tuple[bytes, ...]
    kind: int
    family: int
    end: int


_HEADER: Final = Struct(">HHHHHH")
_OPT: Final = Struct(">BHHBBHH")
_ANSWER: Final = Struct(">HHHIH4s")
_NAME_OF_THE_QUESTION: Final = 0xC000 | _HEADER.size

_RESPONSE: Final = 0x8000
_OPCODE: Final = 0x7800
_AUTHORITATIVE: Final = 0x0400
_TRUNCATED: Final = 0x0200
_RECURSION_DESIRED: Final = 0x0100
_RECURSION_AVAILABLE: Final = 0x0080

_INTERNET: Final = 1
_A: Final = 1
_OPT_KIND: Final = 41
# OPT itself and 128 to 255 are instructions, not data: transfers, signatures, "everything".
_META: Final = frozenset({0, _OPT_KIND, *range(128, 256)})
_MAX_NAME_BYTES: Final = 255
_MAX_LABEL_BYTES: Final = 63
_plain: Final = re.compile(rb"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?").fullmatch


def answer(query: bytes, names: SyntheticNames, allowed: Callable[[str], bool]) -> DnsAnswer:
    """Answer one query. ``allowed`` gets the name in lower case and without a final dot."""
    if len(query) < _HEADER.size:
        return DnsAnswer(reply=b"")
    identity, flags, questions, answers, authorities, additional = _HEADER.unpack_from(query)
    if flags & _RESPONSE:
        return DnsAnswer(reply=b"")
    head = _Head(identity, flags)
    if flags & _OPCODE:
        return DnsAnswer(reply=head.reply(Rcode.NOT_IMPLEMENTED))
    shape = (questions, answers, authorities, flags & _TRUNCATED) == (1, 0, 0, 0) and additional <= 1
    question = _question(query) if shape and len(query) <= MAX_DNS_QUERY_BYTES else None
    if question is None:
        return DnsAnswer(reply=head.reply(Rcode.FORMAT_ERROR))
    head.question = query[_HEADER.size : question.end]
    if additional:
        version = _edns_version(query, question.end)
        if version is None:
            return DnsAnswer(reply=head.reply(Rcode.FORMAT_ERROR))
        head.edns = True
        if version:
            return DnsAnswer(reply=head.reply(Rcode.BAD_VERSION))
    elif len(query) != question.end:
        return DnsAnswer(reply=head.reply(Rcode.FORMAT_ERROR))
    return _decide(head, question, names, allowed)


class _Head:
    """Fields of the query that the answer repeats. It repeats the question exactly: some mix its case and compare."""

    def __init__(self, identity: int, flags: int) -> None:
        self._identity = identity
        self._flags = _RESPONSE | (flags & (_OPCODE | _RECURSION_DESIRED)) | _RECURSION_AVAILABLE
        self.question = b""
        self.edns = False

    def reply(self, code: Rcode, address: str | None = None) -> bytes:
        flags = self._flags | (code & 0xF)
        if code in (Rcode.NO_ERROR, Rcode.NO_SUCH_NAME):
            flags |= _AUTHORITATIVE
        counts = (1 if self.question else 0, 0 if address is None else 1, 0, 1 if self.edns else 0)
        parts = [_HEADER.pack(self._identity, flags, *counts), self.question]
        if address is not None:
            packed = bytes(map(int, address.split(".")))
            parts.append(_ANSWER.pack(_NAME_OF_THE_QUESTION, _A, _INTERNET, DNS_TTL_SECONDS, len(packed), packed))
        if self.edns:
            parts.append(_OPT.pack(0, _OPT_KIND, DNS_UDP_BYTES, code >> 4, 0, 0, 0))
        return b"".join(parts)


def _decide(head: _Head, question: _Question, names: SyntheticNames, allowed: Callable[[str], bool]) -> DnsAnswer:
    if question.family != _INTERNET or question.kind in _META:
        return DnsAnswer(reply=head.reply(Rcode.REFUSED), refused_name=_render_labels(question.labels))
    name = _canonical(question.labels)
    if name is None or not allowed(name):
        return DnsAnswer(reply=head.reply(Rcode.NO_SUCH_NAME), refused_name=_render_labels(question.labels))
    address = names.assign(name)
    if address is None:
        return DnsAnswer(reply=head.reply(Rcode.REFUSED), refused_name=name, is_full=True)
    return DnsAnswer(reply=head.reply(Rcode.NO_ERROR, address if question.kind == _A else None))


def _question(query: bytes) -> _Question | None:
    """Parse the question; None for a name with a compression pointer, too long or cut off, which no client sends."""
    labels = []
    at = _HEADER.size
    while True:
        if at >= len(query) or query[at] > _MAX_LABEL_BYTES:
            return None
        length = query[at]
        at += 1
        if not length:
            break
        labels.append(query[at : at + length])
        at += length
        if at - _HEADER.size >= _MAX_NAME_BYTES:
            return None
    end = at + 4
    if end > len(query):
        return None
    kind, family = int.from_bytes(query[at : at + 2], "big"), int.from_bytes(query[at + 2 : end], "big")
    return _Question(tuple(labels), kind, family, end)


def _edns_version(query: bytes, at: int) -> int | None:
    """Return the version of the one OPT record that ends the query; None for anything else."""
    if len(query) < at + _OPT.size:
        return None
    root, kind, _, extended, version, _, length = _OPT.unpack_from(query, at)
    if root or kind != _OPT_KIND or extended or len(query) != at + _OPT.size + length:
        return None
    return int(version)


def _canonical(labels: tuple[bytes, ...]) -> str | None:
    """Fold the name; None if a label has other characters than letters, digits, hyphens and underscores.

    A label may hold any byte, even a dot: `example.com` as one label must not pass for two.
    """
    lowered = [label.lower() for label in labels]
    if not lowered or not all(map(_plain, lowered)):
        return None
    return b".".join(lowered).decode("ascii")


def _render_labels(labels: tuple[bytes, ...]) -> str:
    """Write any name as text: bytes other than plain characters become `\\DDD`, as in zone files."""
    return (
        ".".join(
            "".join(chr(byte) if 0x21 <= byte <= 0x7E and byte not in b".\\" else f"\\{byte:03d}" for byte in label)
            for label in labels
        )
        or "."
    )


class DnsStream:
    """DNS over TCP, where two bytes before each message give its length."""

    def __init__(self) -> None:
        self._held = bytearray()

    def receive(self, data: bytes) -> list[bytes]:
        """Return the complete queries. Raise ``MalformedTraffic`` for one that is empty or too long."""
        self._held += data
        queries = []
        while len(self._held) >= 2:
            length = int.from_bytes(self._held[:2], "big")
            if not _HEADER.size <= length <= MAX_DNS_QUERY_BYTES:
                raise MalformedTraffic("a DNS message of an impossible length")
            if len(self._held) < 2 + length:
                break
            queries.append(bytes(self._held[2 : 2 + length]))
            del self._held[: 2 + length]
        return queries


def frame(reply: bytes) -> bytes:
    return len(reply).to_bytes(2, "big") + reply
