"""Which headers a caller may set on a request, and which survive a change of host.

A header that frames the message or names another host, path or method than was judged is ours alone: an agent that
could set it would be asking for something else than was approved.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Self, TypeAlias
from urllib.parse import urljoin

import msgspec

from palyra.egress.domain.target import Target
from palyra.egress.limits import (
    MAX_HEADER_NAME_CHARS,
    MAX_HEADER_VALUE_CHARS,
    MAX_REQUEST_HEAD_BYTES,
    MAX_REQUEST_HEADERS,
    MAX_URL_CHARS,
)
from palyra.errors import InvalidInput, LimitExceeded

Headers: TypeAlias = tuple[tuple[str, str], ...]

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|")

_FRAMING: Final = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
     "http2-settings", "expect", "accept-encoding", "content-encoding", "alt-used")
)  # fmt: skip
# Servers behind some proxies take these for the host, path or method of the request.
_OVERRIDES: Final = frozenset(
    ("x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url",
     "x-forwarded-host", "x-original-host", "x-host", "x-forwarded-path", "x-forwarded-prefix", "forwarded")
)  # fmt: skip
# All that another host may see of a request that was meant for the first.
_HARMLESS: Final = frozenset(("accept", "accept-language", "user-agent", "content-type", "content-language", "range"))
_OF_THE_BODY: Final = frozenset(("content-type", "content-language", "content-location", "content-disposition"))


class BadHeader(InvalidInput):
    code = "fetch.bad_header"
    hint = "header names are letters, digits and hyphens; values are one line of plain ASCII"


class ForbiddenHeader(InvalidInput):
    code = "fetch.forbidden_header"
    hint = "leave it away: Palyra sets what frames a request and names its host, path and method"


def accept_headers(given: Mapping[str, Any]) -> Headers:
    """The caller's headers, or the reason why one of them is not sent."""
    if len(given) > MAX_REQUEST_HEADERS:
        raise BadHeader(f"{len(given)} headers are given and {MAX_REQUEST_HEADERS} may be")
    seen: set[str] = set()
    for name, value in given.items():
        if not isinstance(value, str):
            raise BadHeader(f"the value of {name[:MAX_HEADER_NAME_CHARS]!r} is no text")
        if len(name) > MAX_HEADER_NAME_CHARS or not _TOKEN.fullmatch(name):
            raise BadHeader(f"{name[:MAX_HEADER_NAME_CHARS]!r} is no header name")
        if len(value) > MAX_HEADER_VALUE_CHARS or not _VALUE.fullmatch(value):
            raise BadHeader(
                f"the value of {name} is longer than {MAX_HEADER_VALUE_CHARS} characters, or not one plain line"
            )
        folded = folded_name(name)
        if folded in _FRAMING | _OVERRIDES or folded.startswith("proxy-"):
            raise ForbiddenHeader(f"{name} is not a caller's to set", header=name)
        if folded in seen:
            raise BadHeader(f"{name} is given twice")
        seen.add(folded)
    return tuple(given.items())


def folded_name(name: str) -> str:
    """One spelling for names that gateways treat as one: case, and underscores for hyphens."""
    return name.lower().replace("_", "-")


def for_another_host(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if folded_name(name) in _HARMLESS)


def without_body(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if folded_name(name) not in _OF_THE_BODY)


# An address on the web in the one spelling that is judged, sent and shown.

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# A backslash is a slash to browsers and not to servers; control characters never stand in an address.
_NEVER: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")
# Characters that people and servers write as they are, and that travel encoded.
_ENCODED: Final = re.compile(r"[^\x21\x23-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]+")
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadUrl(InvalidInput):
    code = "fetch.bad_url"
    hint = "write the address plainly: http:// or https://, a host, a path; spaces and the like percent-encoded"


class WebAddress(msgspec.Struct, frozen=True, kw_only=True):
    """``path`` is what goes on the request line: path and query, never a fragment."""

    target: Target
    path: str

    @classmethod
    def parse(cls, raw: str) -> Self:
        """Raises BadUrl, or the egress refusal of a host, port or scheme that is not plain."""
        if len(raw) > MAX_URL_CHARS:
            raise BadUrl(f"the address has {len(raw)} characters and may have {MAX_URL_CHARS}")
        if found := _NEVER.search(raw):
            raise BadUrl(f"the address has the character {found.group()!r} in it")
        authority = _AUTHORITY.match(raw)
        if authority is None:
            raise BadUrl("the address does not begin with a scheme and a host")
        target = Target.from_url(authority.group())
        rest = raw[authority.end() :].partition("#")[0]
        if not rest.startswith("/"):
            rest = "/" + rest
        if _BAD_ESCAPE.search(rest):
            raise BadUrl("the address has a percent sign that begins no escape")
        path = _ENCODED.sub(_escaped, rest)
        if len(path) > MAX_URL_CHARS:
            raise BadUrl(f"the address has {len(path)} characters when encoded and may have {MAX_URL_CHARS}")
        return cls(target=target, path=path)

    def join(self, location: str) -> "WebAddress":
        """Where a ``Location`` header of this address's answer leads. What it says is judged like any address."""
        if len(location) > MAX_URL_CHARS or _NEVER.search(location):
            raise BadUrl("the answer's Location is no address")
        try:
            joined = urljoin(str(self), location)
        except ValueError as error:
            raise BadUrl("the answer's Location is no address") from error
        return WebAddress.parse(joined)

    @property
    def host_header(self) -> str:
        """Host and port as a Host header names them: without a port that the scheme implies."""
        target = self.target
        if target.port == _DEFAULT_PORTS.get(target.scheme):
            return target.authority.rpartition(":")[0]
        return target.authority

    @property
    def origin(self) -> str:
        return f"{self.target.scheme}://{self.host_header}"

    def __str__(self) -> str:
        return self.origin + self.path


def _escaped(found: "re.Match[str]") -> str:
    try:
        return "".join(f"%{byte:02X}" for byte in found.group().encode())
    except UnicodeEncodeError as error:
        raise BadUrl("the address has half a character in it") from error


# One request as the bytes of HTTP/1.1. Every part was checked before; this refuses to write what would not be one.

USER_AGENT: Final = "palyra-fetch/1"
ACCEPT_ENCODING: Final = "gzip, deflate"
_LINE: Final = re.compile(r"[\x20-\x7e\t]*")


class RequestTooLarge(LimitExceeded):
    code = "fetch.request_too_large"
    hint = "send fewer or shorter headers"


def write_request(address: WebAddress, method: str, headers: Headers, body: bytes | None) -> bytes:
    """``headers`` are the caller's and the injected ones. The connection serves this request alone."""
    given = {folded_name(name) for name, _ in headers}
    lines = [f"{method} {address.path} HTTP/1.1", f"Host: {address.host_header}"]
    if "user-agent" not in given:
        lines.append(f"User-Agent: {USER_AGENT}")
    if "accept" not in given:
        lines.append("Accept: */*")
    if "accept-encoding" not in given:
        lines.append(f"Accept-Encoding: {ACCEPT_ENCODING}")
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("Connection: close")
    if not all(map(_LINE.fullmatch, lines)):
        raise AssertionError("a request line with a control character in it was about to be sent")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
    if len(head) > MAX_REQUEST_HEAD_BYTES:
        raise RequestTooLarge(f"the request's head has {len(head)} bytes and may have {MAX_REQUEST_HEAD_BYTES}")
    return head + (body or b"")
