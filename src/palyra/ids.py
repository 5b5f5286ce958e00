"""ULIDs as distinct types: a run is not a call, and mypy and the parser both know it."""

import os
import re
import time
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final, Self

import msgspec

from palyra.errors import InvalidInput
from palyra.limits import MAX_PRINCIPAL_CHARS, MAX_TOOL_NAME_CHARS

# A principal is ``agent:<id>`` or ``user:<id>``, parsed once at the edge.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@/+-]*")
_CAPITAL = re.compile(r"[A-Z]")


class InvalidPrincipal(InvalidInput):
    code = "principal.malformed"
    hint = "write user:<id> or agent:<id>; an id starts with a letter or digit and goes on with those or . _ @ / + -"


class PrincipalKind(StrEnum):
    USER = "user"
    AGENT = "agent"


_KINDS = {kind.value: kind for kind in PrincipalKind}


class Principal(msgspec.Struct, frozen=True, order=True):
    kind: PrincipalKind
    id: str

    @classmethod
    def parse(cls, raw: str) -> Self:
        kind, colon, name = raw.partition(":")
        if len(raw) > MAX_PRINCIPAL_CHARS or not colon or kind not in _KINDS or not _ID.fullmatch(name):
            raise InvalidPrincipal(f"{raw[:MAX_PRINCIPAL_CHARS]!r} is not a principal")
        return cls(_KINDS[kind], name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    @property
    def folder(self) -> str:
        """Return the name of its own folder. No id holds ``=`` or a comma, so no two principals share a name.

        Capitals are marked: some file systems do not tell them from small letters.
        """
        return f"{self.kind}={_CAPITAL.sub(lambda found: '=' + found[0].lower(), self.id).replace('/', ',')}"


_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PYTHON_DIGITS: Final = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_TIME_CHARS: Final = 10
# A ULID is a time in milliseconds, then random characters of five bits each.
RANDOM_CHARS: Final = 16
_NS_PER_MS: Final = 1_000_000
# Two characters at once.
PAIR_BITS: Final = 10
PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_PAIR_MASK: Final = (1 << PAIR_BITS) - 1
_SHIFTS_OF_SECOND: Final = tuple(range(30, -1, -PAIR_BITS))
# The character of each byte: eight bytes for every character, so that all are equally likely.
_CHARACTERS: Final = _ALPHABET.encode() * 8


def random_text(chars: int) -> str:
    return os.urandom(chars).translate(_CHARACTERS).decode("ascii")


def spell_time(time_ms: int) -> str:
    """Return the beginning of a ULID of this millisecond. A library takes as long for it as an event's INSERT."""
    return _spell_second(time_ms >> PAIR_BITS) + PAIRS[time_ms & _PAIR_MASK]


# Ids are made in the order of time, so that the last few are all that is ever asked for again.
@lru_cache(maxsize=16)
def _spell_second(seconds: int) -> str:
    """Return all but the last two characters, which stay the same for about a second."""
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
        return cls(spell_time(time.time_ns() // _NS_PER_MS) + random_text(RANDOM_CHARS))

    @classmethod
    def parse(cls, raw: str) -> Self:
        if not _ULID.fullmatch(raw):
            article = "an" if cls.noun[0] in "aeiou" else "a"
            raise InvalidId(f"{raw[:64]!r} is not {article} {cls.noun}")
        return cls(raw)


def ulid_at(instant_ms: int) -> str:
    """Return the smallest id of an instant: ids made from then on are greater."""
    return spell_time(instant_ms) + "0" * RANDOM_CHARS


def instant_of(ulid: str) -> int:
    """Return the time of an id in milliseconds. For a prefix of an id, return the earliest possible time."""
    return int(ulid[:_TIME_CHARS].ljust(_TIME_CHARS, "0").translate(_PYTHON_DIGITS), 32)


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
    """Id of one Palyra process. After its end, unfinished work is found by this id."""

    __slots__ = ()
    noun = "instance id"


# Event ids are ULIDs that grow within one process, so that the index over them grows at its end. The first bits after
# the time count up; the rest are random, so that two processes make different ids.
_COUNTER_BITS = 2 * PAIR_BITS
_COUNTER_CHARS = 4
_COUNTER_BYTES = 3
_COUNTER_END = 1 << _COUNTER_BITS


class EventIds:
    """Maker of event ids, for one thread: each store's writer has its own.

    The counter goes on from one millisecond to the next, so that no id occurs twice even if the clock goes back.
    """

    def __init__(self) -> None:
        self._time_ms = -1
        self._time = self._ours = self._prefix = ""
        self._counter = _COUNTER_END

    def next(self, time_ms: int) -> str:
        self._counter = counter = self._counter + 1
        if counter >= _COUNTER_END:
            # Starting in the lower half leaves room for half a million events before the rest has to change.
            self._counter = counter = int.from_bytes(os.urandom(_COUNTER_BYTES)) & (_COUNTER_END - 1) >> 1
            self._ours = random_text(RANDOM_CHARS - _COUNTER_CHARS)
            self._prefix = self._time + self._ours
        if time_ms != self._time_ms:
            self._time_ms, self._time = time_ms, spell_time(time_ms)
            self._prefix = self._time + self._ours
        return self._prefix + PAIRS[counter >> PAIR_BITS] + PAIRS[counter & _PAIR_MASK]


# Set by Palyra's own program on stdio, which holds the owner's token and acts on behalf of an agent.
PRINCIPAL_HEADER: Final = "palyra-principal"


_TOOL_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)*")


class InvalidToolName(InvalidInput):
    code = "tool.malformed_name"
    hint = "tool names are lower-case words joined by dots, such as fs.read"


class ToolName(str):
    __slots__ = ()

    @classmethod
    def parse(cls, raw: str) -> Self:
        if len(raw) > MAX_TOOL_NAME_CHARS or not _TOOL_NAME.fullmatch(raw):
            raise InvalidToolName(f"{raw[:MAX_TOOL_NAME_CHARS]!r} is not a tool name")
        return cls(raw)
