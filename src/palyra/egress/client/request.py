"""Requests of http.fetch: its parsed arguments, its redirects, and the interfaces it needs."""

import base64
import binascii
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Protocol, Self
from urllib.parse import unquote_to_bytes

import msgspec

from palyra.egress.domain.credential import find_placeholders
from palyra.egress.domain.grant import EgressGrant, Meter
from palyra.egress.domain.header_rules import Headers, accept_headers, for_another_host, without_body
from palyra.egress.domain.injection import ResponseScan
from palyra.egress.domain.target import Target
from palyra.egress.limits import DEFAULT_MAX_BYTES, MAX_MAX_BYTES, MAX_REDIRECTS
from palyra.egress.protocols.http1_request import BadUrl, WebAddress
from palyra.egress.tls import Connection
from palyra.errors import Denied, InvalidInput, LimitExceeded


class Connector(Protocol):
    async def connect(self, grant: EgressGrant, target: Target, meter: Meter) -> tuple[Connection, str]:
        """Return a connection and the address it ends at, or raise an ``EgressRefused`` leaf.

        Judge the target, resolve it once, judge every address, dial one of them and confirm the peer. ``meter`` counts
        the bytes and ends the connection when they are spent. Cancelling leaves no socket open.
        """
        ...


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Headers with credentials, for the wire only."""

    headers: Headers
    redaction: ResponseScan
    # The references of the secrets in them.
    secrets: tuple[str, ...] = ()


class Credentials(Protocol):
    async def prepare(self, grant: EgressGrant, target: Target, method: str, path: str, headers: Headers) -> Prepared:
        """Fill placeholders, set bound headers, and drop the caller's own copies of those.

        Raise ``CredentialNotAllowed`` or ``CredentialMissing``.
        """
        ...


class FetchAccess(msgspec.Struct, frozen=True, kw_only=True):
    grant: EgressGrant
    connector: Connector
    credentials: Credentials


METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Servers answer these with "length required" unless the length is stated, even if it is 0.
_SENDS_A_BODY: Final = frozenset(("POST", "PUT", "PATCH"))
_NO_BODY: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_MARK: Final = "{{vault:"


class BadFetch(InvalidInput):
    code = "fetch.bad_request"
    hint = "`palyra tools show http.fetch` shows the arguments it takes"


class MisplacedPlaceholder(InvalidInput):
    code = "fetch.misplaced_placeholder"
    hint = "a secret goes into the value of a header; in an address or a body it would end up in logs and pages"


class RedirectMode(StrEnum):
    FOLLOW = "follow"
    REFUSE = "refuse"
    MANUAL = "manual"


class ContentFormat(StrEnum):
    """``auto`` is readable text for HTML, text for other text, and base64 for the rest."""

    AUTO = "auto"
    TEXT = "text"
    READABLE = "readable"
    RAW_BASE64 = "raw_base64"


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``body`` None is no body at all; ``placeholders`` are the references of secrets in header values."""

    address: WebAddress
    method: str = "GET"
    headers: Headers = ()
    body: bytes | None = None
    timeout_ms: int | None = None
    max_bytes: int = DEFAULT_MAX_BYTES
    redirect: RedirectMode = RedirectMode.FOLLOW
    format: ContentFormat = ContentFormat.AUTO
    placeholders: tuple[str, ...] = ()

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> Self:
        """Parse arguments that passed the tool's schema; check here what a schema cannot express."""
        url = arguments["url"]
        if _MARK in url or _MARK.encode() in unquote_to_bytes(url.encode("utf-8", "surrogatepass")):
            raise MisplacedPlaceholder("the address has a vault placeholder in it")
        method = arguments.get("method", "GET")
        if method not in METHODS:
            raise BadFetch(f"{str(method)[:32]!r} is not one of {', '.join(METHODS)}")
        headers = accept_headers(arguments.get("headers", {}))
        body = _body(arguments)
        if body is not None and method in _NO_BODY:
            raise BadFetch(f"a {method} request has no body")
        max_bytes = arguments.get("max_bytes", DEFAULT_MAX_BYTES)
        if not 1 <= max_bytes <= MAX_MAX_BYTES:
            raise BadFetch(f"max_bytes is {max_bytes} and may be 1 to {MAX_MAX_BYTES}")
        return cls(
            address=WebAddress.parse(url),
            method=method,
            headers=headers,
            body=b"" if body is None and method in _SENDS_A_BODY else body,
            timeout_ms=arguments.get("timeout_ms"),
            max_bytes=max_bytes,
            redirect=RedirectMode(arguments.get("redirect", RedirectMode.FOLLOW)),
            format=ContentFormat(arguments.get("format", ContentFormat.AUTO)),
            placeholders=_placeholders(headers),
        )


def _body(arguments: Mapping[str, Any]) -> bytes | None:
    text, encoded = arguments.get("body"), arguments.get("body_base64")
    if text is not None and encoded is not None:
        raise BadFetch("body and body_base64 are both given")
    if encoded is not None:
        try:
            body = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadFetch("body_base64 is no base64") from error
    elif text is not None:
        try:
            body = text.encode()
        except UnicodeEncodeError as error:
            raise BadFetch("body has half a character in it; send bytes as body_base64") from error
    else:
        return None
    if _MARK.encode() in body:
        raise MisplacedPlaceholder("the body has a vault placeholder in it")
    return body


def _placeholders(headers: Headers) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name, value in headers:
        refs = find_placeholders(value)
        rest = value
        for ref in refs:
            rest = rest.replace(f"{_MARK}{ref}}}}}", "")
        if _MARK in rest:
            raise BadFetch(f"{name} has a vault placeholder that is not written {{{{vault:scope/key}}}}")
        found.update(dict.fromkeys(refs))
    return tuple(found)


# A redirect is the server's wish. It leads only where the judge allows, never from https to http, never
# in a circle. To another host it takes nothing that was meant for the first: no credentials, no cookies, no body, and
# only a few harmless headers.

_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_KEEPS_METHOD: Final = frozenset((307, 308))


class RedirectRefused(Denied):
    code = "fetch.redirect_refused"
    hint = "look at where it leads (redirect = manual), and fetch that address by itself if it is right"


class TooManyRedirects(LimitExceeded):
    code = "fetch.too_many_redirects"
    hint = "fetch the last address by itself if it is right"


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    source: str
    destination: str


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a call. ``with_credentials`` is lost with the first change of host and never comes back."""

    address: WebAddress
    method: str
    headers: Headers
    body: bytes | None
    with_credentials: bool = True
    passed: tuple[Passed, ...] = ()
    visited: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def first(cls, request: FetchRequest) -> "Hop":
        return cls(
            address=request.address,
            method=request.method,
            headers=request.headers,
            body=request.body,
            visited=frozenset({(request.method, str(request.address))}),
        )


def is_redirect(status: int) -> bool:
    return status in _REDIRECTS


def next_hop(hop: Hop, status: int, location: str, mode: RedirectMode) -> Hop:
    """Return the request after a redirect, or raise ``RedirectRefused``, ``TooManyRedirects`` or an egress refusal."""
    if mode is not RedirectMode.FOLLOW:
        raise refused(hop, status, location, "the call says to follow none")
    try:
        address = hop.address.join(location)
    except BadUrl as error:
        raise refused(hop, status, location, error.message) from error
    if len(hop.passed) >= MAX_REDIRECTS:
        raise TooManyRedirects(
            f"{MAX_REDIRECTS} redirects were followed and there is another", redirects=_render_redirects(hop.passed)
        )
    if hop.address.target.scheme == "https" and address.target.scheme != "https":
        raise refused(hop, status, location, "it leads from https down to http")
    method, headers, body = hop.method, hop.headers, hop.body
    if (status == 303 and method != "HEAD") or (status not in _KEEPS_METHOD and method == "POST"):
        method, headers, body = "GET", without_body(headers), None
    with_credentials = hop.with_credentials
    if address.target != hop.address.target:
        if body:
            raise refused(hop, status, location, "it would send the request's body to another host")
        with_credentials, headers = False, for_another_host(headers)
    visit = (method, str(address))
    if visit in hop.visited:
        raise refused(hop, status, location, "it leads in a circle")
    return Hop(
        address=address,
        method=method,
        headers=headers,
        body=body,
        with_credentials=with_credentials,
        passed=(*hop.passed, Passed(status=status, source=str(hop.address), destination=str(address))),
        visited=hop.visited | {visit},
    )


def refused(hop: Hop, status: int, location: str, why: str) -> RedirectRefused:
    return RedirectRefused(
        f"the answer {status} of {hop.address.target.authority} is a redirect that is not followed: {why}",
        status=status,
        location="".join(character if " " <= character <= "~" else "?" for character in location[:512]),
        redirects=_render_redirects(hop.passed),
    )


def _render_redirects(passed: tuple[Passed, ...]) -> list[dict[str, object]]:
    return [msgspec.to_builtins(each) for each in passed]
