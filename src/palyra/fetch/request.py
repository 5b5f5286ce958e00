"""What a call of http.fetch asks for, parsed once."""

import base64
import binascii
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Self
from urllib.parse import unquote_to_bytes

import msgspec

from palyra.egress.credential import find_placeholders
from palyra.errors import InvalidInput
from palyra.fetch.header_rules import Headers, accept_headers
from palyra.fetch.limits import DEFAULT_MAX_BYTES, MAX_MAX_BYTES
from palyra.fetch.web_address import WebAddress

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Servers answer these with "length required" unless the length is said, be it nothing.
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
    """``body`` None is no body at all; ``placeholders`` are the secrets that header values name."""

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
        """``arguments`` have passed the tool's schema; what a schema cannot say is checked here."""
        url = arguments["url"]
        if _MARK in url or _MARK.encode() in _unquoted(url):
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


def _unquoted(url: str) -> bytes:
    return unquote_to_bytes(url.encode("utf-8", "surrogatepass"))
