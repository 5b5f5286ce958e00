"""Tells from a client's first bytes whether it speaks TLS or HTTP, so that the right check is made on them.

It errs on the side of the check: whatever a lenient server could still read as HTTP or TLS (an invented method, a
leading empty line, HTTP/2, an SSLv2 hello) is called that, and the strict parser then refuses it.
"""

import re
from typing import Final, Literal

from palyra.egress.http_head import TOKEN
from palyra.egress.machine_limits import MAX_FIRST_LINE_BYTES

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
    """``more`` while the bytes so far could still be several things; any other answer is final."""
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
