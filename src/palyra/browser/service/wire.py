"""Wire messages of the browser daemon as values, and back. A value and its message have the same field names."""

import types
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from palyra.browser.domain.action import Action, BadAction
from palyra.browser.domain.session_api import BadRequest
from palyra.errors import ExitCode, PalyraError, RemoteError, exit_code_of
from palyra.limits import KIB
from palyra.secret import Secret
from palyra.wire.browser.v1 import browser_pb2 as wire

# The trailing metadata of a refusal. The ending makes gRPC accept any bytes.
ERROR_KEY: Final = "palyra-error-bin"
# gRPC refuses metadata beyond 8 KiB.
MAX_DOCUMENT_BYTES: Final = 6 * KIB
MAX_MESSAGE_CHARS: Final = 1024
MAX_HINT_CHARS: Final = 512


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    hint: str = ""
    details: dict[str, Any] = {}
    exit_code: int = 1
    http_status: int = 500


def encode_error(error: PalyraError) -> bytes:
    shown = error.as_dict()
    status = error.remote_http_status if isinstance(error, RemoteError) else error.http_status
    document = _Document(
        code=shown["code"],
        message=shown["message"][:MAX_MESSAGE_CHARS],
        hint=shown["hint"][:MAX_HINT_CHARS],
        details=shown.get("details", {}),
        exit_code=int(exit_code_of(error)),
        http_status=status,
    )
    encoded = msgspec.json.encode(document, enc_hook=str)
    if len(encoded) > MAX_DOCUMENT_BYTES:
        encoded = msgspec.json.encode(msgspec.structs.replace(document, details={}))
    return encoded


def decode_error(raw: bytes) -> PalyraError:
    """Return the error of its own class if the code is known here, or else one with its code, hint and exit code."""
    document = msgspec.json.decode(raw, type=_Document)
    known = PalyraError.registry.get(document.code)
    # An error class with a constructor of its own cannot be rebuilt from the document.
    if known is not None and known.__init__ is PalyraError.__init__:
        details = {name: value for name, value in document.details.items() if name not in ("message", "hint")}
        return known(document.message, hint=document.hint, **details)
    exit_code = document.exit_code if document.exit_code in set(ExitCode) else int(ExitCode.FAILED)
    return RemoteError(
        document.message,
        remote_code=document.code,
        hint=document.hint,
        exit_code=exit_code,
        http_status=document.http_status,
    )


T = TypeVar("T", bound=msgspec.Struct)

ACTIONS: Final[Mapping[str, type[Action]]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Action)}


def read(message: Any, kind: type[T]) -> T:
    """Build the value of a message. Unset fields have the value's defaults; a missing required field is refused."""
    try:
        return kind(**_fields(message, kind))
    except TypeError:
        needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
        raise BadRequest(f"{message.DESCRIPTOR.name} needs {', '.join(needed)}") from None


def write(value: msgspec.Struct, message: Any) -> Any:
    for field in message.DESCRIPTOR.fields:
        given = getattr(value, field.name, None)
        if given is not None:
            _put(message, field, given)
    return message


def read_action(message: Any) -> Action:
    tag = message.WhichOneof("action")
    if tag is None:
        raise BadAction("the action is missing, or one that this daemon does not know")
    kind = ACTIONS[tag]
    fields = _fields(getattr(message, tag), kind)
    try:
        return kind(tab=message.tab, timeout_ms=message.timeout_ms, **fields)
    except TypeError:
        raise BadAction(f"the action {tag} lacks a field that it needs") from None


def write_action(action: Action, message: Any = None) -> Any:
    message = wire.Action() if message is None else message
    tag = str(action.__struct_config__.tag)
    message.tab, message.timeout_ms = action.tab, action.timeout_ms
    chosen = getattr(message, tag)
    chosen.SetInParent()
    write(action, chosen)
    return message


@lru_cache(maxsize=128)
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind)


def _fields(message: Any, kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = _hints(kind)
    found = {}
    for field in message.DESCRIPTOR.fields:
        if field.name in hints:
            value = _get(message, field, hints[field.name])
            if value is not msgspec.UNSET:
                found[field.name] = value
    return found


def _get(message: Any, field: FieldDescriptor, hint: Any) -> Any:
    """Return UNSET for a field that the value's default replaces."""
    raw = getattr(message, field.name)
    hint, may_be_none = _without_none(hint)
    if field.is_repeated:
        if get_origin(hint) is dict:
            return dict(raw)
        return tuple(_one(field, each, get_args(hint)[0]) for each in raw)
    if field.has_presence:
        return _one(field, raw, hint) if message.HasField(field.name) else msgspec.UNSET
    if not raw and may_be_none:
        return None
    if not raw and (field.enum_type is not None or _is_enum(hint)):
        return msgspec.UNSET
    return _one(field, raw, hint)


def _one(field: FieldDescriptor, raw: Any, hint: Any) -> Any:
    if field.message_type is not None:
        return Secret(raw.value) if hint is Secret else read(raw, hint)
    if not _is_enum(hint):
        return raw
    name = raw
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(raw)
        name = "" if known is None else known.name.removeprefix(_prefix(field.enum_type)).lower()
    try:
        return hint(name)
    except ValueError:
        raise BadRequest(f"{field.name} is not one of {', '.join(hint)}") from None


def _put(message: Any, field: FieldDescriptor, given: Any) -> None:
    if field.is_repeated:
        target = getattr(message, field.name)
        if isinstance(given, dict):
            target.update(given)
        elif field.message_type is not None:
            for each in given:
                write(each, target.add())
        else:
            target.extend(map(str, given))
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        if isinstance(given, Secret):
            inner.value = given.reveal()
        else:
            write(given, inner)
    elif field.enum_type is not None:
        number = field.enum_type.values_by_name[_prefix(field.enum_type) + str(given).upper()].number
        setattr(message, field.name, number)
    else:
        setattr(message, field.name, str(given) if isinstance(given, str) else given)


def _prefix(enum: EnumDescriptor) -> str:
    first: str = enum.values[0].name
    return first.removesuffix("UNSPECIFIED")


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, StrEnum)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    kinds = [each for each in get_args(hint) if each is not type(None)]
    return kinds[0], len(kinds) < len(get_args(hint))
