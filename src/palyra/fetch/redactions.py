"""The secrets of every request of one call, taken out of whatever comes back to it."""

from palyra.fetch.ports import Redaction


class Redactions:
    """Is itself a ``Redaction``. A call without credentials has none and changes nothing."""

    def __init__(self) -> None:
        self._each: list[Redaction] = []

    def add(self, redaction: Redaction) -> None:
        self._each.append(redaction)

    @property
    def times(self) -> int:
        return sum(each.times for each in self._each)

    def whole(self, data: bytes) -> bytes:
        for each in self._each:
            data = each.whole(data)
        return data

    def name(self, name: bytes) -> bytes:
        for each in self._each:
            name = each.name(name)
        return name

    def broken_off(self, data: bytes) -> bytes:
        for each in self._each:
            data = each.broken_off(data)
        return data

    def found_in(self, text: str) -> bool:
        raw = text.encode("utf-8", "surrogatepass")
        return self.whole(raw) != raw
