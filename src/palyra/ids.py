"""ULIDs as distinct types: a run is not a call, and mypy and the parser both know it."""

import os
import re
import time
from typing import ClassVar, Final, Self

from palyra.errors import InvalidInput

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_CHARS: Final = 10
_RANDOM_CHARS: Final = 16
# A ULID is a time in milliseconds, then bits of chance.
RANDOM_BITS: Final = 80
_NS_PER_MS: Final = 1_000_000
# Spelled two characters at a time, from the front.
PAIR_BITS: Final = 10
PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_PAIR_MASK: Final = (1 << PAIR_BITS) - 1
_SHIFTS: Final = tuple(range(120, -1, -PAIR_BITS))
_SHIFTS_OF_TIME: Final = tuple(range(40, -1, -PAIR_BITS))


def random_bits() -> int:
    """As many as a ULID has."""
    return int.from_bytes(os.urandom(RANDOM_BITS // 8))


def spelled(number: int) -> str:
    """A ULID's 128 bits in Crockford's base 32. The library that does this takes as long as inserting an event."""
    return "".join([PAIRS[(number >> shift) & _PAIR_MASK] for shift in _SHIFTS])


def spelled_time(time_ms: int) -> str:
    """What a ULID of this millisecond begins with."""
    return "".join([PAIRS[(time_ms >> shift) & _PAIR_MASK] for shift in _SHIFTS_OF_TIME])


class InvalidId(InvalidInput):
    code = "id.malformed"
    hint = "ids are 26 characters of Crockford base 32, as printed by the command that made them"


class Ulid(str):
    """A ULID in its canonical upper-case spelling. Make one with ``new``, accept one with ``parse``."""

    __slots__ = ()
    noun: ClassVar[str] = "id"

    @classmethod
    def new(cls) -> Self:
        return cls(spelled(time.time_ns() // _NS_PER_MS << RANDOM_BITS | random_bits()))

    @classmethod
    def parse(cls, raw: str) -> Self:
        if not _ULID.fullmatch(raw):
            article = "an" if cls.noun[0] in "aeiou" else "a"
            raise InvalidId(f"{raw[:64]!r} is not {article} {cls.noun}")
        return cls(raw)


def ulid_at(instant_ms: int) -> str:
    """The first of all ids of an instant: those that are made from then on are greater."""
    chars = []
    for _ in range(_TIME_CHARS):
        instant_ms, digit = divmod(instant_ms, 32)
        chars.append(_ALPHABET[digit])
    return "".join(reversed(chars)) + "0" * _RANDOM_CHARS


def instant_of(ulid: str) -> int:
    """When an id was made, in milliseconds. Of the first characters alone, when such ids could first be made."""
    instant_ms = 0
    for char in ulid[:_TIME_CHARS].ljust(_TIME_CHARS, "0"):
        instant_ms = instant_ms * 32 + _ALPHABET.index(char)
    return instant_ms


class RunId(Ulid):
    __slots__ = ()
    noun = "run id"


class CallId(Ulid):
    __slots__ = ()
    noun = "call id"


class ApprovalId(Ulid):
    __slots__ = ()
    noun = "approval id"


class EventId(Ulid):
    __slots__ = ()
    noun = "event id"


class TokenId(Ulid):
    __slots__ = ()
    noun = "token id"


class InstanceId(Ulid):
    """One life of one Palyra process; what it left unfinished is found by this id after it died."""

    __slots__ = ()
    noun = "instance id"
