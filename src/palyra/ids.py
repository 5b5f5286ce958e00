"""ULIDs as distinct types: a run is not a call, and mypy and the parser both know it."""

import re
from typing import ClassVar, Self

from palyra.errors import InvalidInput

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


class InvalidId(InvalidInput):
    code = "id.malformed"
    hint = "ids are 26 characters of Crockford base 32, as printed by the command that made them"


class Ulid(str):
    """A ULID in its canonical upper-case spelling. Make one with ``new``, accept one with ``parse``."""

    __slots__ = ()
    noun: ClassVar[str] = "id"

    @classmethod
    def new(cls) -> Self:
        from ulid import ULID

        return cls(str(ULID()))

    @classmethod
    def parse(cls, raw: str) -> Self:
        if not _ULID.fullmatch(raw):
            raise InvalidId(f"{raw[:64]!r} is not a {cls.noun}")
        return cls(raw)


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_CHARS = 10
_RANDOM_CHARS = 16


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
