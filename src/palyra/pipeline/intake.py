"""Takes a call in: opens its record, and reads what it asks for."""

import asyncio
import hashlib
from typing import Any, Final

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import InvalidInput, LimitExceeded
from palyra.ids import CallId, Principal, RunId
from palyra.json_schema import SchemaCheck, SchemaMismatch
from palyra.limits import KIB
from palyra.pipeline.catalog import Catalog, CatalogEntry
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.pipeline.domain.spec import AccessedResources, Arguments, ToolSpec, ToolTier
from palyra.strict_json import parse_strict

# Intake: raw text becomes arguments with one canonical form and one digest, or a refusal that says where.

# Arguments up to here are taken in at once: of the smallest values, ten thousand.
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
    """A call of a known tool with sound arguments, and what it would reach."""

    entry: CatalogEntry
    arguments: Arguments
    touches: AccessedResources


def accept_arguments(spec: ToolSpec, check: SchemaCheck, raw: bytes | str | dict[str, Any]) -> Arguments:
    """``raw`` is text to be parsed strictly, or an object that came out of a strictly parsed envelope."""
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
    """Whether taking it in may keep whoever waits for it for more than some milliseconds."""
    if not isinstance(raw, dict):
        return len(raw) > MAX_QUICK_BYTES
    # Nearly all are flat and small, which is seen at a glance.
    if len(raw) <= MAX_QUICK_MEMBERS and not any(type(value) in (dict, list) for value in raw.values()):
        return False
    try:
        return len(_encode(raw)) > MAX_QUICK_BYTES
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        # Taking it in says what is wrong with it.
        return True


def _check_size(spec: ToolSpec, size: int) -> None:
    if size > spec.max_input_bytes:
        raise InputTooLarge(
            f"{spec.name} accepts {spec.max_input_bytes} bytes of arguments and got {size}", limit=spec.max_input_bytes
        )


def _describe(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


# From a call as a door hands it in to what was asked for: in whose frame, what policy says, and under which plan.


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call as a door hands it in. ``arguments`` is raw text, or an object out of a strictly parsed envelope."""

    tool: str
    arguments: str | bytes | dict[str, Any]
    principal: Principal
    actor: str
    channel: str
    run_id: RunId | None = None
    session: str = ""
    device: str = ""
    wait_ms: int = 0
    timeout_ms: int | None = None
    # The id that its door has given it already, so that it can be cancelled from the first moment.
    call_id: CallId | None = None
    # Where the caller wishes it to run, if not where the tool runs by itself. Policy has to agree.
    tier: ToolTier | None = None


def open_record(request: CallRequest, now_ms: int) -> CallRecord:
    """The record of a call of which nothing is known but what its caller said."""
    return CallRecord(
        call_id=str(request.call_id or CallId.new()),
        run_id=str(request.run_id or RunId.new()),
        tool=request.tool[:128],
        principal=str(request.principal),
        actor=request.actor,
        channel=request.channel,
        session=request.session,
        state=CallState.REFUSED,
        created_ms=now_ms,
    )


async def accept_call(catalog: Catalog, request: CallRequest) -> AcceptedCall:
    """Reads large arguments in a thread: half a million small values take half a second."""
    entry = catalog.entry(request.tool)
    if is_large(request.arguments):
        arguments = await asyncio.to_thread(accept_arguments, entry.spec, entry.input_check, request.arguments)
    else:
        arguments = accept_arguments(entry.spec, entry.input_check, request.arguments)
    return AcceptedCall(entry=entry, arguments=arguments, touches=entry.spec.touches(arguments.value))
