"""Event ids: ULIDs that grow within one process, so that the index over them grows at its end."""

import os

from palyra.ids import PAIR_BITS, PAIRS, RANDOM_CHARS, random_text, spelled_time

_PAIR_MASK = (1 << PAIR_BITS) - 1
# The part that counts up; the rest of the random bits keep two processes apart.
_COUNTER_BITS = 2 * PAIR_BITS
_COUNTER_CHARS = 4
_COUNTER_BYTES = 3
_COUNTER_END = 1 << _COUNTER_BITS


class EventIds:
    """Not thread-safe: each store's writer has its own, and uses it in its turn.

    The counter goes on from one millisecond to the next, so that no id comes twice whatever the clock does.
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
            self._time_ms, self._time = time_ms, spelled_time(time_ms)
            self._prefix = self._time + self._ours
        return self._prefix + PAIRS[counter >> PAIR_BITS] + PAIRS[counter & _PAIR_MASK]
