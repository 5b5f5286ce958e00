"""What a route takes and gives, told beside the function that does it.

``/openapi.json`` is made from this, and a test asks that every route tells it. Bodies are read by the route itself,
into the same types.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.limits import MAX_PRINCIPAL_CHARS
from palyra.vault.limits import MAX_REF_CHARS


def _looks_like(pattern: str, **more: Any) -> Meta:
    """For the document only: the route's own parser refuses what does not fit, with its own code."""
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
# A request is read strictly: what two parsers could take for different numbers is refused.
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
# What an error looks like: our document, or that of RFC 9457 with our code in it.
Refuses = Literal["document", "problem"]
SUCCESS: Final = 200


class Endpoint(Protocol):
    """Takes the parts behind it and a request."""

    def __call__(self, service: Any, request: Any, /) -> Awaitable[Response]: ...


class RouteShape(msgspec.Struct, frozen=True, kw_only=True):
    """``body_rules`` is what a schema says of the body beyond its fields, ``query`` is a struct whose fields are the
    parameters, ``path`` has the types of parts of the path that are no plain words, ``also`` has further statuses with
    the same data, ``errors`` those with an error worth telling of."""

    summary: str
    body: Any = None
    body_rules: Mapping[str, Any] = {}
    accepts: Accepts = "json"
    query: type[msgspec.Struct] | None = None
    path: Mapping[str, Any] = {}
    data: Any = None
    status: int = SUCCESS
    also: tuple[int, ...] = ()
    answers: Answers = "json"
    access: Access = "token"
    refuses: Refuses = "document"
    errors: Mapping[int, str] = {}


class NotDescribed(TypeError):
    """A route without a description: a mistake in the code, found by the tests."""


_SHAPES: dict[Callable[..., Any], RouteShape] = {}

E_ = TypeVar("E_", bound=Callable[..., Any])


def described(summary: str, **shape: Any) -> Callable[[E_], E_]:
    """Tells what the endpoint below takes and gives, in the fields of ``RouteShape``."""

    def tell(endpoint: E_) -> E_:
        _SHAPES[endpoint] = RouteShape(summary=summary, **shape)
        return endpoint

    return tell


def shape_told(endpoint: Callable[..., Any]) -> RouteShape:
    try:
        return _SHAPES[endpoint]
    except KeyError:
        raise NotDescribed(f"{getattr(endpoint, '__qualname__', endpoint)} has no @described") from None
