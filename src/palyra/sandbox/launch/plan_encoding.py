"""The encoding of a start plan: records of system calls, and the memory they point into.

    plan:    version, number of relocations, their offset, offset of the first record      (8 bytes each)
    record:  system call number, six arguments, control

A relocation is the place of a word that holds an offset into the plan; the executor adds the plan's own address to it.
``control`` says in bits 0-7 how many records to advance when the call fails (0: end), in bits 8-15 how many to pass
over when it succeeds, and in bit 63 that the call replaced the plan, which then begins again.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from palyra.sandbox.domain.launch_spec import LaunchStage

VERSION: Final = 1
RESTART: Final = 1 << 63
WORD: Final = 8
HEADER_WORDS: Final = 4
RECORD_WORDS: Final = 8

_ONE_WORD: Final = struct.Struct("<Q")
_ZEROS: Final = tuple((0,) * (RECORD_WORDS - 2 - used) for used in range(7))
_PADDING: Final = tuple(b"\0" * (-over % WORD) for over in range(WORD))


class At(NamedTuple):
    """An argument that is the address of something in the plan's data."""

    offset: int


class Step(NamedTuple):
    """What one record is for."""

    stage: LaunchStage
    call: str
    subject: str = ""


class Segment:
    """Records, the data they point into, and where the addresses are that must be made real."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers
        self.steps: list[Step] = []
        self.words: list[int] = []
        self.data = bytearray()
        # Which word of the records, or which place in the data, is to hold the address of which place in the data.
        self.word_pointers: list[tuple[int, int]] = []
        self.data_pointers: list[tuple[int, int]] = []

    def add(
        self,
        stage: LaunchStage,
        call: str,
        *arguments: int | At,
        subject: str = "",
        on_error: int = 0,
        on_success: int = 1,
    ) -> None:
        """One system call. ``on_error`` and ``on_success``: how many records to advance; 0 on error ends the start."""
        self.steps.append(Step(stage, call, subject))
        words = self.words
        words.append(self.numbers[call])
        for argument in arguments:
            if isinstance(argument, At):
                self.word_pointers.append((len(words), argument.offset))
                words.append(0)
            else:
                words.append(argument)
        words.extend(_ZEROS[len(arguments)])
        words.append(on_error | (on_success - 1) << 8)

    def keep(self, content: bytes) -> At:
        """Puts bytes into the data, at a multiple of a word."""
        self.data += _PADDING[len(self.data) % WORD]
        offset = len(self.data)
        self.data += content
        return At(offset)

    def text(self, content: bytes) -> At:
        return self.keep(content + b"\0")

    def strings(self, contents: Sequence[bytes]) -> At:
        """An array of addresses that ends with zero, as argv and envp are."""
        kept = [self.text(content) for content in contents]
        array = self.keep(bytes(WORD * (len(kept) + 1)))
        self.data_pointers += [(array.offset + WORD * place, at.offset) for place, at in enumerate(kept)]
        return array

    def append(self, other: "Segment") -> None:
        word = len(self.words)
        at = self.keep(bytes(other.data)).offset
        self.words += other.words
        self.steps += other.steps
        self.word_pointers += [(place + word, offset + at) for place, offset in other.word_pointers]
        self.data_pointers += [(place + at, offset + at) for place, offset in other.data_pointers]

    def encode(self) -> bytes:
        words, data = self.words, self.data
        records_at = WORD * HEADER_WORDS
        data_at = records_at + WORD * len(words)
        data += _PADDING[len(data) % WORD]
        for place, offset in self.word_pointers:
            words[place] = data_at + offset
        for place, offset in self.data_pointers:
            _ONE_WORD.pack_into(data, place, data_at + offset)
        relocations = [records_at + WORD * place for place, _ in self.word_pointers]
        relocations += [data_at + place for place, _ in self.data_pointers]
        header = (VERSION, len(relocations), data_at + len(data), records_at)
        return b"".join(
            (
                struct.pack(f"<{HEADER_WORDS + len(words)}Q", *header, *words),
                data,
                struct.pack(f"<{len(relocations)}Q", *relocations),
            )
        )
