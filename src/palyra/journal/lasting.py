"""A part of events' payloads that never changes and is written again and again, such as who takes part in a call."""

from typing import Any

import msgspec


class Lasting:
    """A JSON value, with room for the bytes that it is written as. The redactor fills it once, if it finds nothing
    in the value that has to be changed before it is written."""

    __slots__ = ("found_fit", "value", "written")

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value
        self.found_fit = False
        self.written: msgspec.Raw | None = None


def as_written(part: Any) -> msgspec.Raw:
    """What an encoder asks about parts that it does not know."""
    if type(part) is Lasting and part.written is not None:
        return part.written
    raise TypeError(f"{type(part).__name__} has no JSON form")
