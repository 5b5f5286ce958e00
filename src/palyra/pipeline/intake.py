"""Intake: raw text becomes arguments with one canonical form and one digest, or a refusal that says where."""

import asyncio
import hashlib
from typing import Any, Final

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import InvalidInput, LimitExceeded
from palyra.json_schema import SchemaCheck, SchemaMismatch
from palyra.limits import KIB, MAX_TOOL_INPUT_BYTES
from palyra.pipeline.catalog import Catalog, CatalogEntry
from palyra.pipeline.domain.call import CallRequest, UnknownTool
from palyra.pipeline.domain.spec import Arguments, ToolSpec
from palyra.pipeline.store.argument_tables import SealedArguments
from palyra.strict_json import parse_strict

# Arguments up to this size are parsed on the event loop: ten thousand of the smallest values.
MAX_QUICK_BYTES: Final = 32 * KIB
MAX_QUICK_MEMBERS: Final = 64
_encode: Final = msgspec.json.Encoder().encode


class NotAnObject(InvalidInput):
    code = "arguments.not_an_object"
    hint = 'arguments are a JSON object, such as {"text": "hi"}'


class InputTooLarge(LimitExceeded):
    code = "arguments.too_large"
    hint = "put large content in a workspace file and pass its path"


class ArgumentsRefused(InvalidInput):
    code = "arguments.schema_mismatch"
    hint = "`palyra tools show TOOL` prints the schema"


class AcceptedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a known tool with sound arguments."""

    entry: CatalogEntry
    arguments: Arguments
    sealed: SealedArguments | None = None


def accept_arguments(spec: ToolSpec, check: SchemaCheck, raw: bytes | str | dict[str, Any]) -> Arguments:
    """Accept text, which is parsed strictly, or an object out of a strictly parsed envelope."""
    if isinstance(raw, dict):
        value: Any = raw
    else:
        size = len(raw) if isinstance(raw, bytes) else len(raw.encode("utf-8", "surrogatepass"))
        _check_size(spec, size)
        value = parse_strict(raw)
    if type(value) is not dict:
        raise NotAnObject(f"the arguments of {spec.name} are {_describe(value)}, not an object")
    canonical = canonical_json(value)
    _check_size(spec, len(canonical))
    try:
        check.require(value)
    except SchemaMismatch as mismatch:
        raise ArgumentsRefused(
            f"the arguments of {spec.name} do not fit its schema: {mismatch.message}",
            where=mismatch.pointer,
        ) from mismatch
    if (whole := spec.complete(value)) is not value:
        value, canonical = whole, canonical_json(whole)
    return Arguments(value=value, canonical=canonical, digest=hashlib.sha256(canonical).hexdigest())


def is_large(raw: bytes | str | dict[str, Any]) -> bool:
    """Return whether parsing may block the event loop for more than some milliseconds."""
    if not isinstance(raw, dict):
        return len(raw) > MAX_QUICK_BYTES
    # Nearly all are flat and small.
    if len(raw) <= MAX_QUICK_MEMBERS and not any(type(value) in (dict, list) for value in raw.values()):
        return False
    try:
        return len(_encode(raw)) > MAX_QUICK_BYTES
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        # Parsing reports what is wrong with it.
        return True


def _check_size(spec: ToolSpec, size: int) -> None:
    if size > spec.max_input_bytes:
        raise InputTooLarge(
            f"{spec.name} accepts {spec.max_input_bytes} bytes of arguments and got {size}", limit=spec.max_input_bytes
        )


def _describe(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


async def read_refused(catalog: Catalog, request: CallRequest) -> Arguments | None:
    """Read the arguments of a call that intake refused, for the record. Return None if nobody can read them."""
    try:
        limit = catalog.entry(request.tool).spec.max_input_bytes
    except UnknownTool:
        limit = MAX_TOOL_INPUT_BYTES
    if is_large(request.arguments):
        return await asyncio.to_thread(_read_any, request.arguments, limit)
    return _read_any(request.arguments, limit)


def _read_any(raw: bytes | str | dict[str, Any], limit: int) -> Arguments | None:
    if not isinstance(raw, dict) and len(raw) > limit:
        return None
    try:
        value = raw if isinstance(raw, dict) else parse_strict(raw)
        canonical = canonical_json(value)
    except (InvalidInput, LimitExceeded):
        return None
    if len(canonical) > limit:
        return None
    return Arguments(
        value=value if type(value) is dict else {},
        canonical=canonical,
        digest=hashlib.sha256(canonical).hexdigest(),
    )


async def accept_call(catalog: Catalog, request: CallRequest) -> AcceptedCall:
    """Accept a call. Large arguments are read in a thread: half a million small values take half a second."""
    entry = catalog.entry(request.tool)
    if is_large(request.arguments):
        arguments = await asyncio.to_thread(accept_arguments, entry.spec, entry.input_check, request.arguments)
    else:
        arguments = accept_arguments(entry.spec, entry.input_check, request.arguments)
    return AcceptedCall(entry=entry, arguments=arguments)
