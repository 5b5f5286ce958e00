"""Canonical JSON (RFC 8785): one value, one spelling, one digest.

``msgspec`` writes the same bytes forty times faster for values without floats and with ASCII keys, which is nearly
all that is hashed; everything else goes through the ``rfc8785`` library. A property test holds the two together.
"""

import hashlib
from typing import Any

import msgspec

from palyra.errors import InvalidInput

_MAX_SAFE_INTEGER = 2**53 - 1
sorted_json = msgspec.json.Encoder(order="sorted").encode


class NotCanonical(InvalidInput):
    code = "json.not_canonical"
    hint = "use strings, booleans, null, finite numbers, and integers within ±(2^53 - 1)"


def canonical_json(value: Any) -> bytes:
    if is_plain(value):
        return sorted_json(value)
    import rfc8785

    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeEncodeError) as error:
        raise NotCanonical(f"this value has no canonical JSON form: {error}") from error


def digest_of(value: Any) -> str:
    """Return the SHA-256 of the canonical bytes, in lower-case hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def is_plain(value: Any) -> bool:
    """Return whether ``sorted_json`` writes the value canonically."""
    kind = type(value)
    if kind is str:
        return _encodes(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                return False
            if not (type(item) is str and item.isascii()) and not is_plain(item):
                return False
        return True
    if kind is list or kind is tuple:
        return all(map(is_plain, value))
    if kind is int:
        return bool(-_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER)
    return kind is bool or value is None


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
