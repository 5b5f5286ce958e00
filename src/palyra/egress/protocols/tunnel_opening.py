"""Check of a client's first bytes inside a tunnel, before a byte of them is sent on.

A tunnel is opened for one host; TLS inside it must name that host, and plain HTTP must name it in every request. So an
allowed name cannot be used to reach another one on a shared server.
"""

import re
from enum import Enum
from typing import Final, Literal

from palyra.egress.domain.refusal import EgressRefused, MalformedTraffic, OddTarget, ServerNameMismatch
from palyra.egress.domain.target import Target, canonical_host
from palyra.egress.limits import MAX_FIRST_LINE_BYTES
from palyra.egress.protocols.http1_head import TOKEN
from palyra.egress.protocols.tls_hello import ClientHello, ClientHelloPeek

# In doubt the bytes count as HTTP or TLS, and the strict parser then refuses them: a lenient server may still read an
# invented method, a leading empty line, HTTP/2 or an SSLv2 hello.

Kind = Literal["tls", "http", "other", "more"]

_HANDSHAKE: Final = 0x16
_TLS_MAJOR: Final = 3
_METHODS: Final = (
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT",
)  # fmt: skip
_method: Final = re.compile(rb"(?i:%b)[ \t]" % b"|".join(_METHODS)).match
_words: Final = re.compile(rb"%b+(?:[ \t][^\n]*)?\r?" % TOKEN).fullmatch
_sslv2: Final = re.compile(rb"[\x80-\xff][\x00-\xff]\x01[\x00\x03]").match
_sslv2_start: Final = re.compile(rb"[\x80-\xff](?:[\x00-\xff]\x01?)?").fullmatch


def classify(first: bytes) -> Kind:
    """Return the protocol of a client's first bytes: ``more`` while it is open, any other answer is final."""
    if not first:
        return "more"
    lead = first[0]
    if lead == _HANDSHAKE:
        return "more" if len(first) == 1 else "tls" if first[1] == _TLS_MAJOR else "other"
    if lead >= 0x80:
        return "tls" if _sslv2(first) else "more" if _sslv2_start(first) else "other"
    if lead in b" \t\r\n":
        return "http"
    if _method(first):
        return "http"
    end = first.find(b"\n", 0, MAX_FIRST_LINE_BYTES)
    line = first[:end] if end >= 0 else first[:MAX_FIRST_LINE_BYTES]
    if _words(line) is None:
        return "other"
    if b"HTTP/" in line.upper():
        return "http"
    if end >= 0:
        return "other"
    return "http" if len(first) >= MAX_FIRST_LINE_BYTES else "more"


TLS_PORT = 443
HTTP_PORT = 80


def scheme_of(port: int) -> str:
    """Return the scheme by which a tunnel to this port is judged."""
    return {TLS_PORT: "https", HTTP_PORT: "http"}.get(port, "tcp")


class Opening(Enum):
    UNKNOWN = "unknown"
    TLS = "tls"
    HTTP = "http"
    OTHER = "other"


class TunnelOpening:
    """Buffer of the client's first bytes until their protocol is known and, for TLS, the server name is checked."""

    __slots__ = ("_peek", "_target", "held", "hello", "kind")

    def __init__(self, target: Target) -> None:
        self._target = target
        self._peek: ClientHelloPeek | None = None
        self.kind = Opening.UNKNOWN
        self.held = b""
        self.hello: ClientHello | None = None

    def receive(self, data: bytes) -> Opening:
        """Return the kind once it is certain, or raise a refusal. ``held`` has everything received so far."""
        self.held += data
        if self._peek is None:
            found = classify(self.held)
            if found == "more":
                return Opening.UNKNOWN
            if found != "tls":
                return self._plain(Opening.HTTP if found == "http" else Opening.OTHER)
            self._peek = ClientHelloPeek()
            data = self.held
        hello = self._hello(data)
        if hello is not None:
            self._check_name(hello)
            self.hello = hello
            self.kind = Opening.TLS
        return self.kind

    def end(self) -> Opening:
        """End the client's stream. Half an opening of the web is refused; elsewhere it is another protocol."""
        if self.held and self.kind is Opening.UNKNOWN:
            if self._peek is not None or self._target.port in (TLS_PORT, HTTP_PORT):
                raise self._make_refusal(MalformedTraffic, "the client ended in the middle of its first words")
            self.kind = Opening.OTHER
        return self.kind

    def server_spoke(self) -> Opening:
        """Note that the server sent first, which no server of the web does."""
        if self._peek is None and self._target.port not in (TLS_PORT, HTTP_PORT):
            self.kind = Opening.OTHER
        return self.kind

    def _plain(self, kind: Opening) -> Opening:
        if self._target.port == TLS_PORT:
            raise self._make_refusal(MalformedTraffic, f"port {TLS_PORT} is for TLS, and these bytes are not TLS")
        if self._target.port == HTTP_PORT and kind is not Opening.HTTP:
            raise self._make_refusal(MalformedTraffic, f"port {HTTP_PORT} is for HTTP, and these bytes are not HTTP")
        self.kind = kind
        return kind

    def _hello(self, data: bytes) -> ClientHello | None:
        assert self._peek is not None
        try:
            return self._peek.receive(data)
        except MalformedTraffic as malformed:
            raise self._make_refusal(MalformedTraffic, malformed.message) from None

    def _check_name(self, hello: ClientHello) -> None:
        target = self._target
        if hello.server_name is None:
            # An address has no server name; on other ports old clients send none.
            if target.is_address or target.port != TLS_PORT:
                return
            raise self._make_refusal(ServerNameMismatch, f"the TLS hello names no server, {target.host} was asked for")
        try:
            named = canonical_host(hello.server_name)
        except OddTarget:
            named = None
        if named != target.host:
            raise self._make_refusal(
                ServerNameMismatch, f"the TLS hello names {hello.server_name[:255]!r}, {target.host} was asked for"
            )

    def _make_refusal(self, leaf: type[EgressRefused], message: str) -> EgressRefused:
        return leaf(message, **self._target.where)
