"""Headers that a caller may set on a request, and those that survive a change of host.

A header that frames the message or names another host, path or method than was judged is ours alone: an agent that
could set it would be asking for something else than was approved.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from palyra.egress.limits import MAX_HEADER_NAME_CHARS, MAX_HEADER_VALUE_CHARS, MAX_REQUEST_HEADERS
from palyra.errors import InvalidInput

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
        if folded in _FRAMING | _OVERRIDES or folded.startswith("proxy-"):
            raise ForbiddenHeader(f"{name} is not a caller's to set", header=name)
        if folded in seen:
            raise BadHeader(f"{name} is given twice")
        seen.add(folded)
    return tuple(given.items())


def fold_name(name: str) -> str:
    """Fold names that gateways treat as one: case, and underscores for hyphens."""
    return name.lower().replace("_", "-")


def for_another_host(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if fold_name(name) in _HARMLESS)


def without_body(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if fold_name(name) not in _OF_THE_BODY)
