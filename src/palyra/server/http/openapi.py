"""The OpenAPI 3.1 document, made from tables of routes and their descriptions."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from palyra.limits import MAX_HTTP_BODY_BYTES
from palyra.server.http.route_schema import (
    JSON_VALUE,
    MAX_WHOLE_NUMBER,
    Access,
    KeyText,
    RouteShape,
    ScopeText,
    UlidText,
    find_shape,
)
from palyra.server.http.views import ErrorView

OPENAPI_VERSION: Final = "3.1.0"
SCHEMA_REF: Final = "#/components/schemas/{name}"
EXIT_CODE_HEADER: Final = "Palyra-Exit-Code"

TableOfRoutes = Iterable[tuple[str, str, Callable[..., Any]]]

_PART: Final = re.compile(r"\{(\w+)\}")
# The name of a secret has a slash, which a parameter of a path may not have: the document has two parameters.
_REST_OF_PATH: Final = re.compile(r"\{ref:path\}")
# The types of parameters in paths that are not plain words.
_PATH_TYPES: Final[dict[str, Any]] = {
    "call_id": UlidText,
    "run_id": UlidText,
    "approval_id": UlidText,
    "token_id": UlidText,
    "scope": ScopeText,
    "key": KeyText,
}
_SECURITY: Final[dict[Access, list[dict[str, list[str]]]]] = {
    "token": [{"token": []}],
    "session": [{"session": []}],
    "open": [],
}
_MEDIA: Final = {
    "json": "application/json",
    "events": "text/event-stream",
    "text": "text/plain",
    "document": "application/json",
    "file": "*/*",
}


_WHOLE_NUMBER: Final = {"minimum": -MAX_WHOLE_NUMBER, "maximum": MAX_WHOLE_NUMBER}
# One server-sent event. The reference describes the data of each kind.
_SENT_EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": {"type": "string"}},
}
# Any value inside an object of a request.
_JSON_VALUE: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": ["string", "boolean", "null"]},
        {"type": "number", **_WHOLE_NUMBER},
        {"type": "array", "items": {"$ref": SCHEMA_REF.format(name=JSON_VALUE)}},
        {"type": "object", "additionalProperties": {"$ref": SCHEMA_REF.format(name=JSON_VALUE)}},
    ]
}


_BODY: Final = f"one JSON object of at most {MAX_HTTP_BODY_BYTES} bytes; whole numbers without fraction or exponent"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of every route that refuses or fails. A failed call has ``data`` too."""

    ok: bool
    error: ErrorView
    data: Any = None


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the form of RFC 9457, with our fields added."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    message: str
    hint: str
    details: dict[str, Any] = {}


class DescribedRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A route that is not in a table, such as one of the console."""

    method: str
    path: str
    name: str
    shape: RouteShape


def openapi_document(
    tables: Iterable[TableOfRoutes], *, version: str, elsewhere: Iterable[DescribedRoute] = ()
) -> dict[str, Any]:
    """Build the document. Raise NotDescribed for a route without a description."""
    routes = [
        (method, path, find_shape(endpoint), endpoint.__name__) for table in tables for method, path, endpoint in table
    ]
    routes += [(route.method, route.path, route.shape, route.name) for route in elsewhere]
    schemas = _Schemas(_types_of([shape for _, _, shape, _ in routes]))
    paths: dict[str, dict[str, Any]] = {}
    for method, raw, shape, name in routes:
        path = _REST_OF_PATH.sub("{scope}/{key}", raw)
        paths.setdefault(path, {})[method.lower()] = _operation(path, shape, schemas, name)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Palyra",
            "version": version,
            "summary": "Runs the tools of AI agents safely: authorised, contained, recorded.",
            "description": "Errors are `{ok: false, error: {code, message, hint}}`; their codes are stable.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "from `palyra token create`"},
                "session": {"type": "apiKey", "in": "cookie", "name": "palyra_session"},
            },
        },
    }


def _types_of(shapes: list[RouteShape]) -> list[Any]:
    found: list[Any] = [Refusal, Problem]
    for shape in shapes:
        found += [kind for kind in (shape.body, shape.data, shape.query) if kind is not None]
        found += shape.path.values()
    return [*found, *_PATH_TYPES.values(), str]


class _Schemas:
    """The schemas of all types. A named type is a component, and its schema a reference."""

    def __init__(self, types: list[Any]) -> None:
        schemas, components = msgspec.json.schema_components(types, ref_template=SCHEMA_REF)
        self._schemas = [(kind, _to_portable(schema)) for kind, schema in zip(types, schemas, strict=True)]
        self.components: dict[str, Any] = {JSON_VALUE: _JSON_VALUE, **_to_portable(components)}

    def of(self, kind: Any) -> dict[str, Any]:
        return next(schema for known, schema in self._schemas if known is kind or known == kind)

    def component(self, struct: Any) -> dict[str, Any]:
        """Return the struct's component, whose name is longer than the struct's if two structs share it."""
        component: dict[str, Any] = self.components[self.of(struct)["$ref"].rpartition("/")[2]]
        return component

    def fields(self, struct: type[msgspec.Struct]) -> Iterator[tuple[str, dict[str, Any], bool]]:
        whole = self.component(struct)
        for name, schema in whole["properties"].items():
            yield name, schema, name in whole["required"]


def _to_portable(schema: Any) -> Any:
    """Write Python's ``\\Z`` as ``$``, as other dialects do, and bound whole numbers to those that a double holds."""
    if isinstance(schema, dict):
        portable = {
            name: value.replace("\\Z", "$") if name == "pattern" and isinstance(value, str) else _to_portable(value)
            for name, value in schema.items()
        }
        return {**_WHOLE_NUMBER, **portable} if schema.get("type") == "integer" else portable
    return [_to_portable(one) for one in schema] if isinstance(schema, list) else schema


def _operation(path: str, shape: RouteShape, schemas: _Schemas, name: str) -> dict[str, Any]:
    verb = path.rpartition("/")[2]
    operation: dict[str, Any] = {
        # One function may serve several paths that differ in their last word.
        "operationId": name if "{" in verb or not name.startswith(("change_", "pause_")) else f"{name}_{verb}",
        "summary": shape.summary,
        "security": _SECURITY[shape.access],
        "responses": {
            **{str(status): _answer(shape, schemas) for status in (shape.status, *shape.also)},
            **_refusals(shape),
        },
    }
    parameters = [*_path_parameters(path, shape, schemas), *_query_parameters(shape, schemas)]
    if parameters:
        operation["parameters"] = parameters
    if shape.accepts == "archive":
        archive = {"schema": {"type": "string", "contentMediaType": "application/zip"}}
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": archive}}
    elif shape.body is not None:
        operation["requestBody"] = {
            # A form of another site can send an empty body but no JSON, so requests of a session need one.
            "required": shape.access == "session" or bool(schemas.component(shape.body)["required"]),
            "description": _BODY,
            "content": {"application/json": {"schema": {**schemas.of(shape.body), **shape.body_rules}}},
        }
    return operation


def _path_parameters(path: str, shape: RouteShape, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    for name in _PART.findall(path):
        kind = shape.path.get(name, _PATH_TYPES.get(name, str))
        yield {"name": name, "in": "path", "required": True, "schema": {"minLength": 1, **schemas.of(kind)}}


def _query_parameters(shape: RouteShape, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    if shape.query is not None:
        for name, schema, required in schemas.fields(shape.query):
            yield {"name": name, "in": "query", "required": required, "schema": _without_null(schema)}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null: a parameter is absent instead."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        return dict(choices[0])
    return {key: value for key, value in schema.items() if key != "default" or value is not None}


def _answer(shape: RouteShape, schemas: _Schemas) -> dict[str, Any]:
    media = _MEDIA[shape.answers]
    if shape.answers == "document":
        return {"description": shape.summary, "content": {media: {"schema": {"type": "object"}}}}
    if shape.answers == "events":
        return {"description": shape.summary, "content": {media: {"schema": _SENT_EVENT}}}
    if shape.answers != "json":
        return {"description": shape.summary, "content": {media: {"schema": {"type": "string"}}}}
    document = {
        "type": "object",
        "properties": {"ok": {"const": True}, "data": schemas.of(shape.data) if shape.data is not None else {}},
        "required": ["ok", "data"],
        "additionalProperties": False,
    }
    return {"description": shape.summary, "content": {media: {"schema": document}}, "headers": _exit_code()}


def _refusals(shape: RouteShape) -> dict[str, Any]:
    media, kind = ("application/problem+json", Problem) if shape.refuses == "problem" else (_MEDIA["json"], Refusal)
    content = {media: {"schema": {"$ref": SCHEMA_REF.format(name=kind.__name__)}}}
    texts = {str(status): text for status, text in shape.errors.items()} | {
        "default": "an error with its code and a hint"
    }
    return {
        status: {"description": text, "content": content, "headers": _exit_code()} for status, text in texts.items()
    }


def _exit_code() -> dict[str, Any]:
    header = {
        "description": "the exit code that the command line would end with",
        "schema": {"type": "integer", "minimum": 0, "maximum": 6},
    }
    return {EXIT_CODE_HEADER: header}
