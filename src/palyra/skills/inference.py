"""What recorded calls tell: JSON Schemas that their arguments and results fit, and the capabilities they used.

Inference generalises as little as it can: a schema admits the recorded values and others of the same shape, a
capability is one that a call really used. A person reviews both.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from palyra.egress.target import Target
from palyra.errors import PalyraError

# Deeper than this, and with more keys, a recorded value is data and not a shape.
_MAX_DEPTH: Final = 8
_MAX_PROPERTIES: Final = 64
_HTTPS_PORT: Final = 443
STORAGE_ROOT: Final = "files"


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a run. ``result`` is None where it did not succeed or its result was not kept."""

    tool: str
    arguments: dict[str, Any]
    result: Any = None


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a skill that does the same would have to ask for; ``beyond`` are calls that no skill can make."""

    hosts: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()


def infer_object_schema(values: Sequence[Any]) -> dict[str, Any]:
    """A schema of objects, which is what tools take and return; without examples any object fits."""
    objects = [value for value in values if isinstance(value, dict)]
    return infer_schema(objects) if objects else {"type": "object"}


def infer_schema(values: Sequence[Any], depth: int = 0) -> dict[str, Any]:
    kinds = {_kind(value) for value in values}
    if "integer" in kinds and "number" in kinds:
        kinds.discard("integer")
    if not kinds or depth >= _MAX_DEPTH:
        return {}
    schema: dict[str, Any] = {"type": min(kinds) if len(kinds) == 1 else sorted(kinds)}
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        schema.update(_object_part(objects, depth))
    items = [item for value in values if isinstance(value, list) for item in value]
    if items:
        inner = infer_schema(items, depth + 1)
        if inner:
            schema["items"] = inner
    return schema


def _object_part(objects: list[dict[str, Any]], depth: int) -> dict[str, Any]:
    keys = sorted({key for value in objects for key in value})
    if len(keys) > _MAX_PROPERTIES:
        return {}
    properties = {key: infer_schema([value[key] for value in objects if key in value], depth + 1) for key in keys}
    required = [key for key in keys if all(key in value for value in objects)]
    part: dict[str, Any] = {"properties": properties, "additionalProperties": False}
    return {**part, "required": required} if required else part


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def host_and_path(url: Any) -> tuple[str, str] | None:
    """The host as a manifest lists it, and the path, of an https URL; None for anything else."""
    if not isinstance(url, str):
        return None
    try:
        target = Target.from_url(url)
    except PalyraError:
        return None
    if target.scheme != "https" or target.is_address:
        return None
    rest = url.partition("://")[2].partition("#")[0]
    at = min((place for place in (rest.find("/"), rest.find("?")) if place >= 0), default=len(rest))
    path = rest[at:]
    host = target.host if target.port == _HTTPS_PORT else target.authority
    return host, path if path.startswith("/") else f"/{path}"


def infer_needs(calls: Iterable[RecordedCall]) -> Needs:
    hosts: set[str] = set()
    reads = writes = False
    beyond: dict[str, None] = {}
    for call in calls:
        match call.tool:
            case "http.fetch":
                place = host_and_path(call.arguments.get("url"))
                if place is None:
                    beyond[f"{call.tool}: skills reach named hosts over https only"] = None
                else:
                    hosts.add(place[0])
            case "fs.read" | "fs.list" | "fs.search":
                reads = True
            case "fs.write" | "fs.patch":
                writes = True
            case tool if tool.startswith(("process.", "browser.", "node.")):
                beyond[f"{tool}: a skill runs no programs, browsers or devices"] = None
            case _:
                continue
    return Needs(
        hosts=tuple(sorted(hosts)),
        read_roots=(STORAGE_ROOT,) if reads and not writes else (),
        write_roots=(STORAGE_ROOT,) if writes else (),
        beyond=tuple(beyond),
    )
