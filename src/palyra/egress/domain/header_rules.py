"""Headers that a caller may set on a request, and those that survive a change of host.

A header that frames the message or names another host, path or method than was judged is ours alone: an agent that
could set it would be asking for something else than was approved.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_plus

from palyra.egress.limits import MAX_HEADER_NAME_CHARS, MAX_HEADER_VALUE_CHARS, MAX_REQUEST_HEADERS
from palyra.errors import InvalidInput

Headers: TypeAlias = tuple[tuple[str, str], ...]

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SIGN: Final = re.compile(r"[^a-z0-9]")
_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|")

_FRAMING: Final = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
     "http2-settings", "expect", "accept-encoding", "content-encoding", "alt-used")
)  # fmt: skip
# Headers that name another method, path or host than the request's own, and who believes them. Nobody may set them in
# `http.fetch` or a skill. For programs the proxy refuses them wherever a rule or a secret depends on the request.
OVERRIDES: Final[Mapping[str, str]] = {
    "x-http-method-override": "the method to Rack, Rails, Symfony, Laravel, Google's APIs and many others",
    "x-http-method": "the method to services of Microsoft and OData",
    "x-method-override": "the method to services of IBM and to middlewares that accept every spelling",
    "x-http-override": "the method to middlewares that accept every spelling",
    "x-original-method": "the method to services behind an ingress that checks requests apart",
    "x-original-url": "the path to IIS, Zend and old Symfony",
    "x-original-uri": "the path to services behind an ingress that checks requests apart",
    "x-original-path": "the path to services behind Envoy",
    "x-envoy-original-path": "the path to services behind Envoy",
    "x-rewrite-url": "the path to IIS, Zend and old Symfony",
    "x-override-url": "the path to some frameworks and gateways",
    "x-request-uri": "the path to some gateways",
    "x-waws-unencoded-url": "the path to services on Azure",
    "x-script-name": "what comes before the path to WSGI servers",
    "script-name": "what comes before the path to servers that mix headers with CGI variables",
    "path-info": "the path to servers that mix headers with CGI variables",
    "request-uri": "the path to servers that mix headers with CGI variables",
    "request-method": "the method to servers that mix headers with CGI variables",
    "forwarded": "the host and the scheme, by RFC 7239",
    "x-original-host": "the host to services behind Azure's gateways",
    "x-host": "the host to some frameworks and caches",
    "x-http-host-override": "the host to some frameworks and caches",
    "x-backend-host": "the host to some gateways",
}
# All of this family says what a proxy was asked for: host, port, scheme, method, path, prefix, and for whom.
_FORWARDED: Final = "x-forwarded-"
# WebDAV writes there, so a secret for one path would write to another.
_DESTINATION: Final = "destination"
# Parameters of a query that name another method: Rails, Laravel, Jersey, Express, Salesforce.
_METHOD_PARAMETERS: Final = frozenset(("-method", "-httpmethod", *(name for name in OVERRIDES if "method" in name)))
# All that another host may see of a request that was meant for the first.
_HARMLESS: Final = frozenset(("accept", "accept-language", "user-agent", "content-type", "content-language", "range"))
_OF_THE_BODY: Final = frozenset(("content-type", "content-language", "content-location", "content-disposition"))


class BadHeader(InvalidInput):
    code = "fetch.bad_header"
    hint = "header names are letters, digits and hyphens; values are one line of plain ASCII"


class ForbiddenHeader(InvalidInput):
    code = "fetch.forbidden_header"
    hint = "omit it: Palyra sets what frames a request and names its host, path and method"


def accept_headers(given: Mapping[str, Any]) -> Headers:
    """Return the caller's headers; raise the reason why one of them is not sent."""
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
        folded = fold_name(name)
        if folded in _FRAMING or folded.startswith("proxy-") or is_override(folded):
            raise ForbiddenHeader(f"{name} is not a caller's to set", header=name)
        if folded in seen:
            raise BadHeader(f"{name} is given twice")
        seen.add(folded)
    return tuple(given.items())


def fold_name(name: str) -> str:
    """Fold names that gateways treat as one: CGI turns each sign into an underscore, and PHP a point too."""
    return _SIGN.sub("-", name.lower())


def is_override(folded: str) -> bool:
    return folded in OVERRIDES or folded.startswith(_FORWARDED)


def find_override(headers: Headers, path: str, *, method_matters: bool, path_matters: bool) -> str | None:
    """Return what in a request names another method, path or host than its first line, or None.

    A service takes a method out of the query only where methods are limited, and a destination where paths are.
    """
    for name, _ in headers:
        folded = fold_name(name)
        if is_override(folded) or (path_matters and folded == _DESTINATION):
            return f"the header {name}"
    if method_matters:
        for part in re.split("[&;]", path.partition("?")[2]):
            parameter = unquote_plus(part.partition("=")[0])
            if fold_name(parameter.partition("[")[0]) in _METHOD_PARAMETERS:
                return f"the parameter {parameter}"
    return None


def for_another_host(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if fold_name(name) in _HARMLESS)


def without_body(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if fold_name(name) not in _OF_THE_BODY)
