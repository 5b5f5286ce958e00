"""JSON for evidence: one reading only.

A document that two parsers can read differently is no evidence of anything, so whatever parsers disagree about is
refused: duplicate keys, NaN and infinities, other encodings than UTF-8, lone surrogates, deep nesting.
"""

import json
from typing import Any, NoReturn

from palyra.errors import InvalidInput
from palyra.limits import MAX_JSON_DEPTH


class AmbiguousJson(InvalidInput):
    """Verification turns this into the error of what it verifies."""

    code = "json.ambiguous"
    hint = "pass UTF-8 JSON without duplicate keys, NaN, lone surrogates or deep nesting"


def read_strict_json(raw: bytes) -> Any:
    try:
        # Decoding first keeps ``json`` from guessing UTF-16 or UTF-32, and a byte order mark from passing.
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AmbiguousJson(f"not JSON in UTF-8: {type(error).__name__}") from error
    _refuse_depth_and_surrogates(value, MAX_JSON_DEPTH)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise AmbiguousJson("an object names one key twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise AmbiguousJson(f"{name} is not JSON")


def _refuse_depth_and_surrogates(value: Any, depth_left: int) -> None:
    if isinstance(value, str):
        _refuse_surrogates(value)
    elif isinstance(value, float):
        # A literal such as 1e999 reads as infinity, which has no JSON spelling.
        if value in (float("inf"), float("-inf")):
            raise AmbiguousJson("a number is out of range")
    elif isinstance(value, dict | list):
        if depth_left == 0:
            raise AmbiguousJson(f"nested deeper than {MAX_JSON_DEPTH}")
        if isinstance(value, dict):
            for key in value:
                _refuse_surrogates(key)
        for item in value.values() if isinstance(value, dict) else value:
            _refuse_depth_and_surrogates(item, depth_left - 1)


def _refuse_surrogates(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise AmbiguousJson("a string holds a lone surrogate") from error
