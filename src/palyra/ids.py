"""ULIDs as distinct types: a run is not a call, and mypy and the parser both know it."""

import os
import re
import time
from functools import lru_cache
from typing import ClassVar, Final, Self

from palyra.errors import InvalidInput

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_CHARS: Final = 10
# A ULID is a time in milliseconds, then characters of chance, of which each has five bits.
RANDOM_CHARS: Final = 16
_NS_PER_MS: Final = 1_000_000
# Two characters at once.
PAIR_BITS: Final = 10
PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_PAIR_MASK: Final = (1 << PAIR_BITS) - 1
_SHIFTS_OF_SECOND: Final = tuple(range(30, -1, -PAIR_BITS))
# What each byte stands for: eight bytes for every character, so that all are equally likely.
_CHARACTERS: Final = _ALPHABET.encode() * 8


def random_text(chars: int) -> str:
    """Characters of chance, as a ULID ends with."""
    return os.urandom(chars).translate(_CHARACTERS).decode("ascii")


def spelled_time(time_ms: int) -> str:
    """What a ULID of this millisecond begins with. The library that does this takes as long as inserting an event."""
    return _spelled_second(time_ms >> PAIR_BITS) + PAIRS[time_ms & _PAIR_MASK]


# Ids are made in the order of time, so that the last few are all that is ever asked for again.
@lru_cache(maxsize=16)
def _spelled_second(seconds: int) -> str:
    """All but the last two characters: they stay the same for about a second."""
    return "".join([PAIRS[(seconds >> shift) & _PAIR_MASK] for shift in _SHIFTS_OF_SECOND])


class InvalidId(InvalidInput):
    code = "id.malformed"
    hint = "ids are 26 characters of Crockford base 32, as printed by the command that made them"


class Ulid(str):
    """A ULID in its canonical upper-case spelling. Make one with ``new``, accept one with ``parse``."""

    __slots__ = ()
    noun: ClassVar[str] = "id"

    @classmethod
    def new(cls) -> Self:
        return cls(spelled_time(time.time_ns() // _NS_PER_MS) + random_text(RANDOM_CHARS))

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
    return "".join(reversed(chars)) + "0" * RANDOM_CHARS


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
