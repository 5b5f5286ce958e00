"""Requests of the HTTP client: one spelling of a web address, to judge, send and print, and the request's bytes."""

import re
from typing import Final, Self
from urllib.parse import urljoin

import msgspec

from palyra.egress.domain.header_rules import Headers, fold_name
from palyra.egress.domain.target import Target
from palyra.egress.limits import MAX_REQUEST_HEAD_BYTES, MAX_URL_CHARS
from palyra.errors import InvalidInput, LimitExceeded

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
    """``path`` is the target of the request line: path and query, never a fragment."""

    target: Target
    path: str

    @classmethod
    def parse(cls, raw: str) -> Self:
        """Parse a URL. Raise BadUrl, or the egress refusal of a host, port or scheme that is not plain."""
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
        path = _ENCODED.sub(_escape, rest)
        if len(path) > MAX_URL_CHARS:
            raise BadUrl(f"the address has {len(path)} characters when encoded and may have {MAX_URL_CHARS}")
        return cls(target=target, path=path)

    def join(self, location: str) -> "WebAddress":
        """Resolve a ``Location`` header of this address's answer. The result is judged like any address."""
        if len(location) > MAX_URL_CHARS or _NEVER.search(location):
            raise BadUrl("the answer's Location is no address")
        try:
            joined = urljoin(str(self), location)
        except ValueError as error:
            raise BadUrl("the answer's Location is no address") from error
        return WebAddress.parse(joined)

    @property
    def host_header(self) -> str:
        """Return host and port for a Host header: without a port that the scheme implies."""
        target = self.target
        if target.port == _DEFAULT_PORTS.get(target.scheme):
            return target.authority.rpartition(":")[0]
        return target.authority

    @property
    def origin(self) -> str:
        return f"{self.target.scheme}://{self.host_header}"

    def __str__(self) -> str:
        return self.origin + self.path


def _escape(found: "re.Match[str]") -> str:
    try:
        return "".join(f"%{byte:02X}" for byte in found.group().encode())
    except UnicodeEncodeError as error:
        raise BadUrl("the address has half a character in it") from error


USER_AGENT: Final = "palyra-fetch/1"
ACCEPT_ENCODING: Final = "gzip, deflate"
_LINE: Final = re.compile(r"[\x20-\x7e\t]*")


class RequestTooLarge(LimitExceeded):
    code = "fetch.request_too_large"
    hint = "send fewer or shorter headers"


def write_request(address: WebAddress, method: str, headers: Headers, body: bytes | None) -> bytes:
    """Render one request, whose connection serves it alone. Every part was checked before; check the lines again."""
    given = {fold_name(name) for name, _ in headers}
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
