"""Event ids: ULIDs that grow within one process, so that the index over them grows at its end.

Written out here because one from the library takes as long as inserting the event.
"""

import secrets

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _CROCKFORD for low in _CROCKFORD]
_PAIR_BITS = 10
_PAIR_MASK = (1 << _PAIR_BITS) - 1
_ULID_BITS = 130
_RANDOM_BITS = 80
# The part that counts up; the rest of the random bits keep two processes apart.
_COUNTER_BITS = 2 * _PAIR_BITS
_COUNTER_END = 1 << _COUNTER_BITS


class EventIds:
    """Not thread-safe: each store's writer thread has its own."""

    def __init__(self) -> None:
        self._time_ms = -1
        self._prefix = ""
        self._counter = _COUNTER_END

    def next(self, time_ms: int) -> str:
        counter = self._counter + 1
        if time_ms != self._time_ms or counter >= _COUNTER_END:
            random = secrets.randbits(_RANDOM_BITS)
            # Starting in the lower half leaves room for half a million events in one millisecond.
            counter = random & (_COUNTER_END - 1) >> 1
            number = ((time_ms << _RANDOM_BITS) | random) >> _COUNTER_BITS
            shifts = range(_ULID_BITS - _COUNTER_BITS - _PAIR_BITS, -1, -_PAIR_BITS)
            self._prefix = "".join([_PAIRS[(number >> shift) & _PAIR_MASK] for shift in shifts])
            self._time_ms = time_ms
        self._counter = counter
        return self._prefix + _PAIRS[counter >> _PAIR_BITS] + _PAIRS[counter & _PAIR_MASK]
