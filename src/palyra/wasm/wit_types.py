"""The types of a component's functions as text, to compare them with those the host has.

The linker takes a Python function for any type a component claims it has. A component that imports a host function
under another type must not get it: the values would be converted by its type, not ours.
"""

from collections.abc import Iterable
from typing import Any, Final

from wasmtime import component as wit

# The longest type of the host's own interfaces has about fifty parts. Types can double at each step: a few bytes may
# stand for millions of parts.
_MAX_PARTS: Final = 500

_PLAIN: Final[dict[type, str]] = {
    wit.Bool: "bool",
    wit.U8: "u8",
    wit.U16: "u16",
    wit.U32: "u32",
    wit.U64: "u64",
    wit.S8: "s8",
    wit.S16: "s16",
    wit.S32: "s32",
    wit.S64: "s64",
    wit.F32: "f32",
    wit.F64: "f64",
    wit.Char: "char",
    wit.String: "string",
    wit.OwnType: "own",
    wit.BorrowType: "borrow",
}


class _Parts:
    def __init__(self) -> None:
        self.left = _MAX_PARTS


class TypeTooLarge(Exception):
    """A type with more parts than any that the host knows."""


def function_text(function: wit.FuncType) -> str:
    """``(string, u32) -> result<u32, string>``; without the arrow where nothing is returned. Names of parameters are
    left out: they mean nothing to the call."""
    parts = _Parts()
    parameters = ", ".join(_text(type_, parts) for _, type_ in function.params)
    result = function.result
    return f"({parameters})" if result is None else f"({parameters}) -> {_text(result, parts)}"


def _text(type_: Any, parts: _Parts) -> str:
    parts.left -= 1
    if parts.left < 0:
        raise TypeTooLarge("a type has too many parts")
    plain = _PLAIN.get(type(type_))
    if plain is not None:
        return plain
    match type_:
        case wit.ListType():
            return f"list<{_text(type_.element, parts)}>"
        case wit.OptionType():
            return f"option<{_text(type_.payload, parts)}>"
        case wit.ResultType():
            ok, err = (("_" if side is None else _text(side, parts)) for side in (type_.ok, type_.err))
            return f"result<{ok}, {err}>"
        case wit.TupleType():
            return f"tuple<{', '.join(_text(element, parts) for element in type_.elements)}>"
        case wit.RecordType():
            return f"record{{{', '.join(f'{name}: {_text(field, parts)}' for name, field in type_.fields)}}}"
        case wit.EnumType():
            return f"enum{{{', '.join(type_.names)}}}"
        case wit.FlagsType():
            return f"flags{{{', '.join(type_.names)}}}"
        case wit.VariantType():
            cases = (name if side is None else f"{name}({_text(side, parts)})" for name, side in type_.cases)
            return f"variant{{{', '.join(cases)}}}"
        case _:
            return type(type_).__name__


def shaped(type_: Any, value: Any) -> Any:
    """A value as the package wants it. Host functions give every result and variant as a ``Variant``; the package wants
    the bare payload wherever the classes of the cases differ."""
    if not isinstance(value, wit.Variant):
        return value
    cases = {"ok": type_.ok, "err": type_.err} if isinstance(type_, wit.ResultType) else dict(type_.cases)
    payload = shaped(cases[value.tag], value.payload)
    return wit.Variant(value.tag, payload) if _overlap(cases.values()) else payload


def _overlap(cases: Iterable[Any]) -> bool:
    known: set[type] = set()
    for case in cases:
        classes: set[type] = set()
        if case is None:
            classes.add(object)
        else:
            case.add_classes(classes)
        if classes & known:
            return True
        known |= classes
    return False
