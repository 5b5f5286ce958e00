"""How quickly things end, by the second: the one that runs, and the one before it."""


class Pace:
    """``now`` is in seconds and never goes back."""

    __slots__ = ("_before", "_now", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._now = 0
        self._before = 0

    def count(self, now: float) -> None:
        self._turn(now)
        self._now += 1

    def per_second(self, now: float) -> int:
        self._turn(now)
        return max(self._now, self._before)

    def _turn(self, now: float) -> None:
        second = int(now)
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._second, self._now = second, 0
