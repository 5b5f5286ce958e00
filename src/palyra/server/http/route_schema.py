"""Descriptions of routes: the types of requests and answers, declared at the function that serves the route.

``/openapi.json`` is made from them, and a test requires one for every route. A route reads its body into the same type.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.limits import MAX_PRINCIPAL_CHARS
from palyra.vault.limits import MAX_REF_CHARS


def _looks_like(pattern: str, **more: Any) -> Meta:
    """Describe a pattern in the document only: the route's own parser refuses other values, with its own code."""
    return Meta(extra_json_schema={"pattern": pattern, **more})


UlidText = Annotated[str, _looks_like("^[0-7][0-9A-HJKMNP-TV-Z]{25}$")]
PrincipalText = Annotated[
    str, _looks_like("^(user|agent):[A-Za-z0-9][A-Za-z0-9._@/+-]*$", maxLength=MAX_PRINCIPAL_CHARS)
]
ScopeText = Annotated[
    str,
    _looks_like(
        "^(global|principal:(user|agent):[A-Za-z0-9]+|(channel|skill):[A-Za-z0-9][A-Za-z0-9._-]*)$",
        maxLength=MAX_REF_CHARS,
    ),
]
RefText = Annotated[
    str,
    _looks_like(
        "^(global|principal:(user|agent):[A-Za-z0-9]+|(channel|skill):[A-Za-z0-9][A-Za-z0-9._-]*)/"
        "[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        maxLength=MAX_REF_CHARS,
    ),
]
KeyText = Annotated[str, _looks_like("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ChannelText = Annotated[str, _looks_like("^[a-z0-9][a-z0-9._-]{0,127}$")]
# Larger whole numbers are refused, because two parsers could read them as different numbers.
MAX_WHOLE_NUMBER: Final = 2**53 - 1
JSON_VALUE: Final = "JsonValue"
FreeObject = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={"additionalProperties": {"$ref": f"#/components/schemas/{JSON_VALUE}"}}),
]
JsonText = Annotated[
    str,
    Meta(extra_json_schema={"contentMediaType": "application/json", "format": "json-object"}),
]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Sha256 = Annotated[str, _looks_like("^(sha256:)?[0-9a-f]{64}$")]

Access = Literal["token", "session", "open"]
Accepts = Literal["json", "archive"]
Answers = Literal["json", "events", "text", "document", "file"]
# The form of an error: our document, or that of RFC 9457 with our code in it.
Refuses = Literal["document", "problem"]
SUCCESS: Final = 200


class Endpoint(Protocol):
    def __call__(self, service: Any, request: Any, /) -> Awaitable[Response]: ...


class RouteShape(msgspec.Struct, frozen=True, kw_only=True):
    summary: str
    body: Any = None
    # The rules of the body's schema beyond its fields.
    body_rules: Mapping[str, Any] = {}
    accepts: Accepts = "json"
    # Its fields are the parameters.
    query: type[msgspec.Struct] | None = None
    # The types of those parts of the path that are not plain words.
    path: Mapping[str, Any] = {}
    data: Any = None
    status: int = SUCCESS
    # Further statuses with the same data.
    also: tuple[int, ...] = ()
    answers: Answers = "json"
    access: Access = "token"
    refuses: Refuses = "document"
    errors: Mapping[int, str] = {}


class NotDescribed(TypeError):
    """A route without a description: a bug, which the tests find."""


_SHAPES: dict[Callable[..., Any], RouteShape] = {}

E_ = TypeVar("E_", bound=Callable[..., Any])


def describe(summary: str, **shape: Any) -> Callable[[E_], E_]:
    """Describe the endpoint below, in the fields of ``RouteShape``."""

    def keep(endpoint: E_) -> E_:
        _SHAPES[endpoint] = RouteShape(summary=summary, **shape)
        return endpoint

    return keep


def find_shape(endpoint: Callable[..., Any]) -> RouteShape:
    try:
        return _SHAPES[endpoint]
    except KeyError:
        raise NotDescribed(f"{getattr(endpoint, '__qualname__', endpoint)} has no @describe") from None
