"""Payloads that are written again and again and differ in a few values only: made ready once, then filled in."""

from collections.abc import Mapping

import msgspec

# Canonical JSON escapes it, so that it stands nowhere in a payload.
_MARK = b"\0"


class Hole:
    """Stands in a payload for a value that is filled in each time."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def written(self) -> msgspec.Raw:
        return msgspec.Raw(_MARK + self.name.encode() + _MARK)


class Form:
    """Made of the canonical bytes of a payload with holes."""

    __slots__ = ("_parts", "_places")

    def __init__(self, encoded: bytes) -> None:
        self._parts = encoded.split(_MARK)
        self._places = tuple((place, self._parts[place].decode()) for place in range(1, len(self._parts), 2))

    def filled(self, values: Mapping[str, bytes]) -> bytes:
        """``values`` are canonical JSON, one for each name of a hole."""
        parts = self._parts.copy()
        for place, name in self._places:
            parts[place] = values[name]
        return b"".join(parts)
