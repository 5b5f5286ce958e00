"""The JSON Schemas that a device may report: a plain subset, checked in about the time it takes to read the input.

A device is not trusted with the daemon's time. References that name each other twice, alternatives within alternatives
and costly patterns make a schema of a kilobyte take hours; so none of them is taken.
"""

from collections.abc import Mapping
from typing import Any, Final

from palyra.errors import InvalidInput

# Every value of an input is compared with each of them.
MAX_CHOICES: Final = 256
_PROPERTIES: Final = "properties"
_ITEMS: Final = "items"
_CHOICES: Final = "enum"
_OTHERS: Final = "additionalProperties"
KEYWORDS: Final = frozenset(
    (
        *("$schema", "title", "description", "default", "examples", "type", "const", "required"),
        *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minItems", "maxItems", "minProperties", "maxProperties", _PROPERTIES, _ITEMS, _CHOICES, _OTHERS),
    )
)


class CostlySchema(InvalidInput):
    code = "nodes.costly_schema"
    hint = "use types, properties, items, enum and limits: no references, patterns or alternatives"


def require_plain(schema: Mapping[str, Any]) -> None:
    """Raises CostlySchema. What is plain may still be no valid schema: that is for the compiler to say."""
    for keyword, value in schema.items():
        if keyword not in KEYWORDS:
            raise CostlySchema(f"{keyword[:32]!r} is not taken from a device")
        if keyword == _PROPERTIES and isinstance(value, dict):
            for inner in value.values():
                _require_inner(inner)
        elif keyword == _ITEMS:
            _require_inner(value)
        elif keyword == _OTHERS and not isinstance(value, bool):
            raise CostlySchema("additionalProperties is true or false")
        elif keyword == _CHOICES and isinstance(value, list) and len(value) > MAX_CHOICES:
            raise CostlySchema(f"an enum has at most {MAX_CHOICES} values")


def _require_inner(value: Any) -> None:
    if isinstance(value, dict):
        require_plain(value)
