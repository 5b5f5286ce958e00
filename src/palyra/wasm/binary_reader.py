"""Reads the binary format of WebAssembly: numbers, names, sections. The bytes are hostile."""

from typing import Final

from palyra.wasm.outcome import CompileFailed

_MAX_LEB_BYTES: Final = 10
_MAX_NAME_BYTES: Final = 100_000


def malformed(message: str) -> CompileFailed:
    return CompileFailed(message)


class Allowance:
    """How many list entries may still be read, over all sections and nested modules."""

    def __init__(self, items: int) -> None:
        self.left = items

    def take(self, items: int) -> None:
        self.left -= items
        if self.left < 0:
            raise malformed("the module has more parts than any honest one")


class BinaryReader:
    def __init__(self, view: memoryview, allowance: Allowance) -> None:
        self.view = view
        self.allowance = allowance
        self._at = 0

    def more(self) -> bool:
        return self._at < len(self.view)

    def skip(self, length: int) -> None:
        if length > len(self.view) - self._at:
            raise malformed("the module ends in the middle of a part")
        self._at += length

    def byte(self) -> int:
        self.skip(1)
        return self.view[self._at - 1]

    def take(self, length: int) -> memoryview:
        start = self._at
        self.skip(length)
        return self.view[start : self._at]

    def number(self) -> int:
        """An unsigned LEB128 of at most 64 bits."""
        value = 0
        for place in range(_MAX_LEB_BYTES):
            byte = self.byte()
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise malformed("a number is longer than any can be")

    def count(self) -> int:
        """The length of a list. Every entry takes at least a byte, so no list is longer than what is left."""
        number = self.number()
        if number > len(self.view) - self._at:
            raise malformed("a list is longer than the module")
        self.allowance.take(number)
        return number

    def name(self) -> str:
        length = self.number()
        if length > _MAX_NAME_BYTES:
            raise malformed("a name is too long")
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as problem:
            raise malformed("a name is not UTF-8") from problem

    def section(self) -> tuple[int, "BinaryReader"]:
        self.allowance.take(1)
        kind, length = self.byte(), self.number()
        return kind, BinaryReader(self.take(length), self.allowance)
