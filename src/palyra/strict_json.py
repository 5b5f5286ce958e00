"""JSON with one reading. Text that two parsers could understand differently is refused, not interpreted.

Refused: duplicate keys, NaN and infinities, numbers that overflow, integers a double cannot hold, a number with a
second spelling (``1.0`` and ``1e0`` for ``1``, ``-0`` for ``0``), lone surrogates, nesting beyond a limit, a byte order
mark, trailing text. So equal canonical bytes mean the same request, and a changed spelling is never the same call.
"""

import json
import math
import re
from typing import Any, NoReturn

from palyra.errors import InvalidInput
from palyra.limits import MAX_JSON_DEPTH

_MAX_SAFE_INTEGER = 2**53 - 1
# Canonical JSON itself writes whole numbers from here on with an exponent, so that they stay doubles.
_FIRST_WITH_EXPONENT = 1e21
_MAX_SAFE_DIGITS = len(str(_MAX_SAFE_INTEGER)) + 1
# So many digits in a row, or a zero that might be negative, anywhere.
_ODD_INTEGER = re.compile(r"[0-9]{16}|-0")


class NotStrictJson(InvalidInput):
    """Base of all refusals of this module."""


class MalformedJson(NotStrictJson):
    code = "json.malformed"
    hint = "send one JSON document in UTF-8"


class DuplicateKey(NotStrictJson):
    code = "json.duplicate_key"
    hint = "each key may stand once in an object: two values for one key have no single meaning"


class AmbiguousNumber(NotStrictJson):
    code = "json.ambiguous_number"
    hint = "write whole numbers without fraction or exponent, within ±(2^53 - 1), and no NaN, Infinity or -0"


class TooDeep(NotStrictJson):
    code = "json.too_deep"
    hint = f"nest at most {MAX_JSON_DEPTH} levels"


def parse_strict(raw: bytes | str, *, any_number_spelling: bool = False) -> Any:
    """Return the value, or raise a NotStrictJson that names the fault.

    ``any_number_spelling`` is for documents rather than requests: a tool's honest result may say ``1.0``.
    """
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        if any_number_spelling:
            value = _DOCUMENTS.decode(text)
        else:
            value = (_REQUESTS if _ODD_INTEGER.search(text) else _PLAIN_REQUESTS).decode(text)
    except UnicodeDecodeError as error:
        raise MalformedJson(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise MalformedJson(f"not JSON: {what} at line {error.lineno}, column {error.colno}") from error
    except ValueError as error:
        raise AmbiguousNumber("an integer has thousands of digits") from error
    except RecursionError as error:
        raise TooDeep(f"nested deeper than {MAX_JSON_DEPTH} levels") from error
    if not _is_plainly_sound(text):
        _check_tree(value, 1)
    return value


def _is_plainly_sound(text: str) -> bool:
    """Return whether the text alone shows that its value is not too deep and has no lone surrogate.

    Nearly every text does: it has few brackets, is ASCII, and has no escape of a surrogate (``\\ud800`` and on).
    """
    escapes_none = "\\u" not in text or ("\\ud" not in text and "\\uD" not in text)
    return escapes_none and text.isascii() and text.count("{") + text.count("[") < MAX_JSON_DEPTH


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKey(f"the key {key[:64]!r} stands twice in one object")
            seen.add(key)
    return result


def _integer(text: str) -> int:
    if text == "-0" or len(text) > _MAX_SAFE_DIGITS or abs(value := int(text)) > _MAX_SAFE_INTEGER:
        raise AmbiguousNumber(f"the integer {text[:32]} is -0 or beyond ±(2^53 - 1)")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise AmbiguousNumber(f"the number {text[:32]} overflows")
    return value


def _float(text: str) -> float:
    value = _finite(text)
    if value.is_integer() and abs(value) < _FIRST_WITH_EXPONENT:
        raise AmbiguousNumber(f"the number {text[:32]} has a second spelling, {int(value)}")
    return value


def _constant(text: str) -> NoReturn:
    raise AmbiguousNumber(f"{text} is not a JSON number")


_REQUESTS = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_integer, parse_constant=_constant
)
# For texts without a suspicious integer: a hook for integers costs a call for each.
_PLAIN_REQUESTS = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
_DOCUMENTS = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_constant)


def _check_tree(value: Any, depth: int) -> None:
    if depth > MAX_JSON_DEPTH:
        raise TooDeep(f"nested deeper than {MAX_JSON_DEPTH} levels")
    if type(value) is str:
        _check_text(value)
    elif type(value) is dict:
        for key, item in value.items():
            _check_text(key)
            _check_tree(item, depth + 1)
    elif type(value) is list:
        for item in value:
            _check_tree(item, depth + 1)


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MalformedJson(f"a string holds half a surrogate pair: {text[error.start]!r}") from error
