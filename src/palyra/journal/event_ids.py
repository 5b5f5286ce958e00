"""Event ids: ULIDs that grow within one process, so that the index over them grows at its end."""

from palyra.ids import PAIR_BITS, PAIRS, RANDOM_BITS, random_bits, spelled

_PAIR_MASK = (1 << PAIR_BITS) - 1
# The part that counts up; the rest of the random bits keep two processes apart.
_COUNTER_BITS = 2 * PAIR_BITS
_COUNTER_CHARS = 4
_COUNTER_END = 1 << _COUNTER_BITS


class EventIds:
    """Not thread-safe: each store's writer has its own, and uses it in its turn."""

    def __init__(self) -> None:
        self._time_ms = -1
        self._prefix = ""
        self._counter = _COUNTER_END

    def next(self, time_ms: int) -> str:
        counter = self._counter + 1
        if time_ms != self._time_ms or counter >= _COUNTER_END:
            random = random_bits()
            # Starting in the lower half leaves room for half a million events in one millisecond.
            counter = random & (_COUNTER_END - 1) >> 1
            self._prefix = spelled(time_ms << RANDOM_BITS | random)[:-_COUNTER_CHARS]
            self._time_ms = time_ms
        self._counter = counter
        return self._prefix + PAIRS[counter >> PAIR_BITS] + PAIRS[counter & _PAIR_MASK]
